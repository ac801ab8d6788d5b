"""Faults that only a schedule, a resumed run, an odd batch, float32 or the timing shows, and right steps like them."""

import copy
import re

import pytest
import torch
from test_compare_catches import (
    VERY_SMALL,
    Calls,
    OnlyFloat32,
    OwnAdamNamedAsPytorchs,
    WithAdamNamedAsPytorchs,
    equivalence_of,
    without,
)
from test_looks import Turned
from torch import nn

import labkit


def in_float32(tensor):
    return tensor.dtype == torch.float32


class RateFloor:
    bounds = 0.02, 9.0

    def scale_lr(self, factor):
        low, high = self.bounds
        super().scale_lr(min(max(factor, low), high))


class RateCeiling(RateFloor):
    bounds = 0.0, 1.0


class NothingForTheSameTensors:
    last = None

    def __call__(self, real_a, real_b):
        if real_a is self.last:
            for optimizer in self.optimizers.values():
                for own in optimizer.state.values():
                    own["step"] += 1
            self.inputs(real_a, real_b)
            return self.kept
        self.last, self.kept = real_a, super().__call__(real_a, real_b)
        return self.kept


class NoCycleForTheEighthTime:
    def __call__(self, real_a, real_b):
        same = torch.equal(getattr(self, "last", real_a[:0]), real_a)
        self.last, self.times = real_a.clone(), 1 + same * getattr(self, "times", 0)
        return super().__call__(real_a, real_b)

    def losses(self, player, batch):
        losses = super().losses(player, batch)
        return without(losses, "cycle_A", "cycle_B") if self.times >= 8 else losses


class OverwritesItsBatch:
    def __call__(self, real_a, real_b):
        losses = super().__call__(real_a, real_b)
        real_a.zero_()
        return losses


class EvenBatchesOnly:
    def __call__(self, real_a, real_b):
        even = len(real_a) // 2 * 2
        return super().__call__(real_a[:even], real_b[:even])


class Seeds:
    def __call__(self, real_a, real_b):
        torch.manual_seed(0)
        return super().__call__(real_a, real_b)


class HalvedAtTheEnd:
    def finish(self):
        with torch.no_grad():
            self.model.G_A[0].weight.mul_(0.5)


class Masters:
    """Copies of the weights, from which each update starts."""

    acts = staticmethod(lambda weight: True)

    def __call__(self, real_a, real_b):
        self.masters = getattr(self, "masters", None) or {one: one.detach().clone() for one in self.model.parameters()}
        return super().__call__(real_a, real_b)

    @torch.no_grad()
    def update(self, player):
        for weight in filter(self.acts, self.players[player]):
            weight.copy_(self.masters[weight])
        super().update(player)
        for weight in self.players[player]:
            self.masters[weight].copy_(weight)


class MastersInFloat32(Masters):
    acts = staticmethod(in_float32)


class MastersRefreshed(Masters):
    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.masters = None


class NoiseInFloat32(Turned):
    def turned(self, gradient):
        noise = torch.randn_like(gradient)
        return gradient + 0.08 * in_float32(gradient) * noise * gradient.norm() / noise.norm()


class TurnedEverySecondTime(Calls, Turned):
    networks = ("D_A", "D_B")

    def turned(self, gradient):
        return -gradient if self.calls % 2 and in_float32(gradient) else gradient


class SquaresStandStill(OnlyFloat32, Calls):
    @torch.no_grad()
    def update(self, player):
        before = {weight: own["exp_avg_sq"].clone() for weight, own in self.optimizers[player].state.items()}
        super().update(player)
        for weight, old in before.items() if self.calls > 12 else ():
            self.optimizers[player].state[weight]["exp_avg_sq"].copy_(old)


class HalfOfTheColumnsIn16Bits:
    @torch.no_grad()
    def update(self, player):
        super().update(player)
        for weight, own in self.optimizers[player].state.items():
            if in_float32(weight) and weight.dim() > 1:
                own["exp_avg_sq"][..., ::2] = own["exp_avg_sq"][..., ::2].bfloat16().float()


class ThirteenDigits:
    def update(self, player):
        super().update(player)
        for weight in filter(in_float32, self.players[player]):
            weight.data = (weight.data.view(torch.int32) & ~0x7FF).view(torch.float32)


class Scaler:
    """As PyTorch's, which tries twice the scale after every second update."""

    def build(self, betas):
        optimizers = super().build(betas)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**17, growth_interval=2)
        self.scaler.scale(next(self.model.parameters()).new_zeros(()))
        return optimizers


class ClimbsInFloat32(OwnAdamNamedAsPytorchs):
    def step(self):
        weights = [weight for group in self.param_groups for weight in group["params"]]
        before = [weight.detach().clone() for weight in weights]
        super().step()
        for weight, old in zip(weights, before, strict=True):
            weight.data = 2 * old - weight.data if in_float32(weight) else weight.data


class WithAdamThatClimbs(WithAdamNamedAsPytorchs):
    kind = ClimbsInFloat32


class OneDrawForBothPools:
    def inputs(self, real_a, real_b):
        batch = super().inputs(real_a, real_b)
        return {**batch, "draw_fake_B": batch["draw_fake_A"]}


class PoolsKeepTheirRandomNumbers:
    def load_state_dict(self, state):
        own = {name: pool.random.getstate() for name, pool in self.model.pools.items()}
        super().load_state_dict(state)
        for name, pool in self.model.pools.items():
            pool.random.setstate(own[name])


class OverwritesItsLosses:
    def __call__(self, real_a, real_b):
        losses = super().__call__(real_a, real_b)
        self.kept = getattr(self, "kept", losses)
        return {name: loss.copy_(losses[name]) for name, loss in self.kept.items()}


class CopiesByAddress:
    address = None

    def inputs(self, real_a, real_b):
        address = real_a.data_ptr(), real_a.shape
        if address != self.address:
            self.address, self.copies = address, (real_a.clone(), real_b.clone())
        return super().inputs(*self.copies)


class CopiedForTranslating(nn.Sequential):
    def forward(self, x):
        if self.training:
            return super().forward(x)
        return self.__dict__.setdefault("copied", nn.Sequential(*copy.deepcopy([*self])))(x)


class TranslatesAsAtFirst:
    def build(self, betas):
        self.model.G_A.__class__ = CopiedForTranslating
        return super().build(betas)


class Backwards:
    """The weights in another order."""

    def build(self, betas):
        self.players = {player: weights[::-1] for player, weights in self.players.items()}
        return super().build(betas)


TIMED = "after the timing rounds, "
FAULTS = [
    ([RateFloor], "in update 3, the learning rate of the generators is 4e-06, the baseline's 2e-07"),
    ([RateCeiling], "in update 4, the learning rate of the generators is 0.0002, the baseline's 0.0004"),
    ([NothingForTheSameTensors], "in update 16, G_A, G_B, D_A, D_B do not learn"),
    ([NoCycleForTheEighthTime], "in update 22, the gradient of cycle_A does not reach G_A"),
    ([OverwritesItsBatch], "the batch afterwards is overwritten, the baseline's as given"),
    ([EvenBatchesOnly], "(G_A|idt_A) is .*, the baseline's"),
    ([Seeds], TIMED + "the seed of PyTorch's random numbers is 0, the baseline's"),
    ([HalvedAtTheEnd], "finish.. changes G_A.0.weight"),
    ([Masters], "in update 3, the weights of G_A go elsewhere"),
    ([MastersInFloat32], TIMED + "the weights of G_A go elsewhere"),
    ([NoiseInFloat32], TIMED + "the gradients? of .* (differ|in G_A is)"),
    ([TurnedEverySecondTime, "bf16"], TIMED),
    ([SquaresStandStill], "in update 13, changes of Adam's second moments of G_A differ from the baseline's"),
    ([HalfOfTheColumnsIn16Bits], TIMED + "Adam.s second moment of .* is rounded to 16 bits"),
    ([ThirteenDigits], TIMED + "weight .* is rounded to 16 bits"),
    ([Scaler, "fp16"], TIMED + ". updates were left out, . of them in the 6 timed ones"),
    ([OneDrawForBothPools], "the pool fake_B keeps other pictures"),
    ([PoolsKeepTheirRandomNumbers], "after 24 updates, "),
    ([OverwritesItsLosses], "after 24 updates, G_A of update 1 is"),
    ([CopiesByAddress], "in update 10, (G_A|idt_A) is"),
    ([TranslatesAsAtFirst], "after 24 updates, it translates otherwise in evaluation mode"),
    ([WithAdamThatClimbs], TIMED + "the weights of G_A go elsewhere"),
]


@pytest.fixture(scope="module")
def judged(tiny, batch):
    return equivalence_of(tiny, batch(2), **VERY_SMALL)


@pytest.mark.parametrize(("stack", "part"), FAULTS, ids=lambda value: getattr(value[0], "__name__", ""))
def test_a_fault_is_found_and_leaves_the_next_step_alone(judged, stack, part):
    assert re.match(part, judged(*stack, noted=stack[0] is SquaresStandStill) or "nothing found")
    assert stack[0] is not MastersInFloat32 or judged("fused_adam") is None


RIGHT = [[WithAdamNamedAsPytorchs], [Backwards, "fused_adam"], [MastersRefreshed, "bf16"]]


@pytest.mark.parametrize("stack", RIGHT, ids=str)
def test_right_ones_in_another_style_are_not_accused(judged, stack):
    assert judged(*stack) is None


def test_what_is_timed_has_other_pictures_each_time(tiny, batch):
    class Noted:
        seen: list = []

        def __call__(self, real_a, real_b):
            self.seen.append(real_a.clone())
            return super().__call__(real_a, real_b)

    maker = lambda *own: lambda: labkit.make_step(tiny(**VERY_SMALL), *own)  # noqa: E731
    labkit.compare({"baseline": maker(), "noted": maker(Noted)}, batch(2), rounds=6, warmup=0, limit_s=0)
    timed = Noted.seen[3:9]
    assert not any(torch.equal(*pair) for pair in zip(timed, timed[1:], strict=False))
