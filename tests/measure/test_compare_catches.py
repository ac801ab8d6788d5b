"""Steps that compute something else than they say: `labkit.compare` names the part that differs."""

import contextlib
import copy
import math
import re

import pytest
import torch
from tiny import EachWeight, one_block, one_generator, two_layers

import labkit
from labkit.measure.compare import first_updates
from labkit.measure.equivalence import EquivalenceCheck
from labkit.measure.walks import moved

VERY_SMALL = dict(generator=two_layers(), ndf=2, n_layers=1, pool_size=20)
ROUNDS = 6  # after the first three updates


class Calls:
    """Counts its calls, from 1 on, in `calls`."""

    calls = 0

    def __call__(self, real_a, real_b):
        self.calls += 1
        return super().__call__(real_a, real_b)


def without(losses, *names):
    """These losses are reported as they are, and not differentiated."""
    return {name: loss.detach() if name in names else loss for name, loss in losses.items()}


class IdentityReportedOnly:
    def losses(self, player, batch):
        return without(super().losses(player, batch), "idt_A", "idt_B")


class FrozenLayer:
    def update(self, player):
        for weight in self.model.G_A[0].parameters():
            weight.grad = None
        super().update(player)


class PoolUnused:
    """Keeps fakes, and looks at the newest nevertheless."""

    def pooled(self, pool, fakes, batch):
        super().pooled(pool, fakes, batch)
        return fakes


class Rounded:
    """Weights kept in bf16."""

    def update(self, player):
        super().update(player)
        with torch.no_grad():
            for weight in self.players[player]:
                weight.copy_(weight.bfloat16())


class ThreePercentHidden:
    """The report is right, the gradient is not."""

    def losses(self, player, batch):
        losses = super().losses(player, batch)
        hidden = losses.get("cycle_B")
        return losses if hidden is None else losses | {"cycle_B": 0.97 * hidden + 0.03 * hidden.detach()}


class AfterTiming(Calls):
    """A base of faults that begin there: the first updates, in float64, do not show them."""

    def begun(self):
        return self.calls >= 8 and self.first.dtype == torch.float32


class JudgedWithoutGradients:
    def losses(self, player, batch):
        with torch.no_grad() if player == "discriminators" else contextlib.nullcontext():
            return super().losses(player, batch)


class FirstBatchForEver:
    """As a graph whose inputs nobody copies."""

    def inputs(self, real_a, real_b):
        self.kept = getattr(self, "kept", (real_a, real_b))
        return super().inputs(*self.kept)


class ForgetsMoments:
    def update(self, player):
        super().update(player)
        self.optimizers[player].state.clear()


class OtherBetas:
    def build(self, betas):
        return super().build((0.9, 0.999))


class ClippedGradients:
    def update(self, player):
        torch.nn.utils.clip_grad_norm_(self.players[player], 0.5)
        super().update(player)


class LearnsOnePercentLess:
    def backward(self, loss, player):
        super().backward(loss if player == "generators" else 0.99 * loss, player)


class BeginsRounded:
    def build(self, betas):
        with torch.no_grad():
            for weight in self.model.parameters():
                weight.copy_(weight.bfloat16())
        return super().build(betas)


class LeavesOut:
    def losses(self, player, batch):
        return {name: loss for name, loss in super().losses(player, batch).items() if name != "cycle_A"}


class Adds:
    def __call__(self, real_a, real_b):
        return super().__call__(real_a, real_b) | {"perceptual": real_a.mean()}


class NotANumber:
    def losses(self, player, batch):
        losses = super().losses(player, batch)
        return losses | ({"D_A": losses["D_A"] * math.nan} if player == "discriminators" else {})


class AdamByHand:
    """Adam in a few lines, with moments of its own (Kingma and Ba, 2015, algorithm 1)."""

    factor = 1.0

    def build(self, betas):
        optimizers = super().build(betas)
        self.moments = {weight: (weight * 0, weight * 0) for weight in self.model.parameters()}
        self.taken = dict.fromkeys(self.players, 0)
        return optimizers

    @torch.no_grad()
    def update(self, player):
        self.taken[player] += 1
        n, rate = self.taken[player], self.factor * self.lr_now[player]
        for weight in self.players[player]:
            mean, square = self.moments[weight]
            mean.lerp_(weight.grad.to(mean), 0.5)
            square.lerp_(weight.grad.to(square) ** 2, 1e-3)
            weight -= rate * mean / (1 - 0.5**n) / ((square / (1 - 0.999**n)).sqrt() + 1e-8)
            weight.grad = None


class AdamByHandTooFast(AdamByHand):
    factor = 1.01


class OwnAdam(EachWeight):
    """The same as an optimiser of one's own."""

    names = "n", "mean", "square"

    def learn(self, weight, own, lr):
        count, *moments = self.names
        n = own[count] = own.get(count, 0) + 1
        mean, square = (own.setdefault(name, torch.zeros_like(weight)) for name in moments)
        mean.lerp_(weight.grad, 0.5)
        square.lerp_(weight.grad**2, 1e-3)
        weight -= lr * mean / (1 - 0.5**n) / ((square / (1 - 0.999**n)).sqrt() + 1e-8)


class WithOwnAdam:
    def optimizer(self, weights, lr, betas):
        return OwnAdam(weights, lr)


class OwnAdamNamedAsPytorchs(OwnAdam):
    names = "step", "exp_avg", "exp_avg_sq"


class WithAdamNamedAsPytorchs:
    kind = OwnAdamNamedAsPytorchs

    def optimizer(self, weights, lr, betas):
        optimizer = self.kind(weights, lr)
        optimizer.param_groups[0]["betas"] = betas
        return optimizer


class WithoutBetas:
    def optimizer(self, weights, lr, betas):
        return OwnAdamNamedAsPytorchs(weights, lr)


class OnlyFloat32:
    """As a kernel of one's own, which knows no other type."""

    def losses(self, player, batch):
        if batch["real_a"].dtype == torch.float64:
            raise TypeError("this kernel knows float32 only")
        return super().losses(player, batch)


class RoundedInFloat32(OnlyFloat32, Rounded):
    pass


class HalfAPercentInFloat32(OnlyFloat32):
    """The cycle's weight is 10.05 instead of 10."""

    def losses(self, player, batch):
        return {n: loss * (1.005 if n == "cycle_B" else 1) for n, loss in super().losses(player, batch).items()}


class Fp8FakesInFloat32(OnlyFloat32):
    def pooled(self, pool, fakes, batch):
        return super().pooled(pool, fakes.to(torch.float8_e4m3fn).to(fakes.dtype), batch)


class Bf16Undeclared:
    def losses(self, player, batch):
        with torch.autocast("cpu", torch.bfloat16):
            return super().losses(player, batch)


class Bf16Declared(Bf16Undeclared):
    tolerance = "16-bit"


class Bf16WithoutIdentity(IdentityReportedOnly, Bf16Declared):
    pass


FOOLS = [
    ([IdentityReportedOnly], {}, "the gradient of idt_A does not reach G_A"),
    ([FrozenLayer], {}, "G_A.0 does not learn"),
    ([PoolUnused], {}, "D_A is .*, the baseline's"),
    ([Rounded], {}, "the weights of G_A go elsewhere, by .* of their way"),
    ([ThreePercentHidden], {}, "the gradient of cycle_B in G_A is 0.97 times the baseline's"),
    ([JudgedWithoutGradients], {}, "the losses of the discriminators: none of D_A, D_B has a gradient"),
    ([FirstBatchForEver], {}, "in update 2, (G_A|cycle_A|idt_A) is .*, the baseline's"),
    ([ForgetsMoments], {}, "in update 2, the weights of G_A go elsewhere"),
    ([OtherBetas], {}, r"the betas of the generators is \(0.9, 0.999\)"),
    ([ClippedGradients], {}, "the gradients of G_A are .* times the baseline's"),
    ([LearnsOnePercentLess], {}, "the gradient of D_A in D_A is 0.99 times the baseline's"),
    ([BeginsRounded], {}, "G_A.0.weight does not begin as the baseline's"),
    ([Bf16Undeclared], {}, "after the timing rounds, "),
    ([NotANumber], {}, "D_A is nan, the baseline's "),
    ([AdamByHandTooFast], {}, "the weights of G_A go elsewhere, by 0.01 of their way"),
    ([RoundedInFloat32], {}, "the weights of G_A go elsewhere, by .* of their way"),
    ([HalfAPercentInFloat32], {}, "cycle_B is .*, the baseline's "),
    ([Fp8FakesInFloat32], {}, "the pool fake_[AB] keeps other pictures"),
    ([], {"pool_size": 0}, "the size of the pool fake_[AB] is 0, the baseline's 20"),
    ([], {"lambda_identity": 0.515}, "idt_A is .*, the baseline's"),
    ([IdentityReportedOnly, "bf16"], {}, "the gradient of idt_A does not reach G_A"),
]


def equivalence_of(tiny, pictures, **small):
    """A function that says how a stack differs from the baseline, once both have been timed."""

    def begun(*stack, **settings):
        return first_updates(labkit.make_step(tiny(**small | settings), *stack), moved(pictures, 0), "fool")

    def timed(step):
        for k in range(1, ROUNDS + 1):
            step(*moved(pictures, k))
        return step

    baseline = begun()
    saved = copy.deepcopy(baseline.step.state_dict())
    check = EquivalenceCheck(
        lambda: labkit.make_step(tiny(**small)), timed(baseline.step), pictures, baseline.begun, saved
    )

    def judged(*stack, noted=False, **settings):
        try:
            one = begun(*stack, **settings)
            timed(one.step)
        except labkit.LabkitError as error:
            return str(error)
        reason, note = check.difference(lambda: labkit.make_step(tiny(**small | settings), *stack), one.step, one.begun)
        assert bool(note) is noted, note
        return reason

    return judged


@pytest.fixture(scope="module")
def judged(tiny, batch):
    """As `equivalence_of`, for networks of two filters."""
    return equivalence_of(tiny, batch(2, size=16), **VERY_SMALL)


@pytest.mark.parametrize(("stack", "settings", "part"), FOOLS)
def test_a_step_that_computes_something_else_is_named_by_its_part(judged, stack, settings, part):
    noted = any(issubclass(one, OnlyFloat32) for one in stack if isinstance(one, type))
    assert re.match(part, judged(*stack, noted=noted, **settings) or "nothing found")


@pytest.mark.slow
def test_a_class_that_declares_16_bits_does_not_hide_it_either(tiny, batch):
    judged = equivalence_of(tiny, batch(1), ngf=8, ndf=4)  # with fewer filters rounding covers the identity
    found = judged(Bf16WithoutIdentity, noted=True)
    assert re.match("(in update .*, )?the gradient of idt_[AB] .*G_[AB]", found or "")
    assert judged(Bf16Declared) is None


EXACT = ["batched", "fused_adam", "out_of_place", "channels_last", "accumulate", "recompute"]
HONEST = [EXACT, ["fp16"], ["bf16", "batched", "fused_adam"], [Bf16Declared], [Adds]]
# Optimisers of one's own, and steps that know float32 only
LONGER = [[own, *more] for own in (AdamByHand, WithOwnAdam, WithoutBetas) for more in ([], ["batched", "out_of_place"])]
LONGER += [[OnlyFloat32, "batched", "out_of_place", "channels_last"], [OnlyFloat32, "bf16"]]


@pytest.mark.parametrize("stack", [*HONEST, *(pytest.param(one, marks=pytest.mark.slow) for one in LONGER)], ids=str)
def test_an_honest_step_is_not_accused(judged, stack):
    assert judged(*stack, noted=OnlyFloat32 in stack) is None


@pytest.mark.slow
@pytest.mark.parametrize("stack", [["fused_adam", "channels_last", "out_of_place"], ["bf16"]], ids=str)
def test_batch_norm_is_judged_too(tiny, batch, stack):
    judged = equivalence_of(tiny, batch(2, size=16), generator=one_block("batch"), norm="batch")
    assert judged(*stack) is None
    assert re.match("the gradient of idt_A does not reach G_A", judged(IdentityReportedOnly, *stack) or "")


@pytest.mark.slow
def test_weights_without_a_gradient_need_not_move(batch):
    assert equivalence_of(one_generator, batch(2))(WithOwnAdam) is None
