"""Steps that go wrong where only one look sees it: in direction, in what Adam keeps, in evaluation mode, or late."""

import inspect
import re
from pathlib import Path

import pytest
import torch
from test_compare_catches import VERY_SMALL, AfterTiming, Calls, equivalence_of
from tiny import one_block
from torch import nn

import labkit
from labkit.measure.equivalence import BITS16, FLOAT32, MOST_LEFT_OUT, ROUNDS, EquivalenceCheck
from labkit.measure.states import State, rounded
from labkit.measure.walks import LOOKS


class Turned:
    """The gradients of one network are turned round."""

    networks = ("G_A",)

    def backward(self, loss, player):
        super().backward(loss, player)
        for name, weight in self.model.named_parameters():
            if weight.grad is not None and name.startswith(self.networks):
                weight.grad = self.turned(weight.grad)

    def turned(self, gradient):
        return -0.99 * gradient


class Climbs(Turned):
    tolerance = "16-bit"


class Rounded16(Climbs):
    """Not by autocast, so that float64 is no help."""

    def turned(self, gradient):
        return gradient.bfloat16().to(gradient)


class ClimbsInOneLayer(Climbs):
    networks = ("D_A.model.2.weight",)


class ClimbsEveryEighth(Calls, Turned):
    def turned(self, gradient):
        return gradient if self.calls % 8 else -gradient


class LongerAfterTiming(AfterTiming):
    def update(self, player):
        before = [weight.detach().clone() for weight in self.players[player]]
        super().update(player)
        with torch.no_grad():
            for weight, old in zip(self.players[player], before, strict=True):
                weight.lerp_(old, -0.03 if self.begun() else 0.0)


class TranslatesOtherwise:
    def build(self, betas):
        self.model.G_A.register_forward_hook(lambda net, _, out: out if net.training else 0.9 * out)
        return super().build(betas)


class FixedStatistics:
    def build(self, betas):
        for layer in self.model.modules():
            layer.momentum = 0.0
        return super().build(betas)


class SameMasks:
    def run(self, batch):
        torch.manual_seed(7)
        return super().run(batch)


class NoMasks:
    def run(self, batch):
        for layer in self.model.modules():
            layer.train(not isinstance(layer, nn.Dropout))
        return super().run(batch)


ANOTHER = " differ from the baseline's by "
FOUND = {
    Climbs: f"the gradients of G_A{ANOTHER}2",
    ClimbsInOneLayer: "the gradient of D_A.model.2.weight points elsewhere: its cosine with the baseline's is -1.00",
    ClimbsEveryEighth: "in update 8, the gradients of G_A are -1 times the baseline's",
    LongerAfterTiming: "after the timing rounds, G_A moves 1.03 times as far",
    TranslatesOtherwise: "after 24 updates, it translates otherwise in evaluation mode",
}


@pytest.fixture(scope="module")
def judged(tiny, batch):
    return equivalence_of(tiny, batch(1), **VERY_SMALL)


@pytest.mark.parametrize(("fool", "part"), FOUND.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_a_look_finds_it(judged, fool, part):
    noted = getattr(fool, "tolerance", "") == "16-bit"
    assert re.match(part, judged(fool, noted=noted) or "nothing found")


def test_a_bias_may_have_few_digits_by_itself(tiny, batch):
    step = labkit.make_step(tiny())
    step(*batch())
    for weight, own in step.optimizers["generators"].state.items():
        if weight.dim() == 1:
            own["exp_avg"].copy_(own["exp_avg"].bfloat16())
    assert rounded(State.of(step)) == []


def test_rounding_to_16_bits_is_no_fault_of_a_class_that_says_so(judged):
    assert judged(Rounded16, noted=True) is None


def test_running_statistics_are_compared(tiny, batch):
    judged = equivalence_of(tiny, batch(2, size=16), generator=one_block("batch"), norm="batch")
    assert judged(FixedStatistics) == "batch norm's running statistics of G_A differ from the baseline's"


@pytest.mark.parametrize("stack", [[SameMasks], [NoMasks], ["batched"], ["bf16"], ["recompute"]], ids=str)
def test_dropout_may_be_drawn_in_another_order_and_has_to_be_drawn(tiny, batch, stack):
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3, padding=1), nn.InstanceNorm2d(4), nn.ReLU(), nn.Dropout(), nn.Conv2d(4, 3, 3, padding=1)
    judged = equivalence_of(tiny, batch(2), generator=nn.Sequential(*layers, nn.Tanh()))
    found = judged(*stack)
    assert found is None if isinstance(stack[0], str) else "random numbers" in found


def test_what_a_look_cannot_take_is_that_step_s_own_fault(tiny, batch, monkeypatch):
    """An error of any kind costs a look of this row, and no other row."""

    def fails(*_):
        raise ValueError("another set of weights")

    judged = equivalence_of(tiny, batch(1), **VERY_SMALL)
    monkeypatch.setattr(EquivalenceCheck, "first_fault", fails)
    monkeypatch.setattr("labkit.measure.walks.Look.walk", fails)
    monkeypatch.setattr("labkit.measure.walks.hand_over", fails)
    assert judged("out_of_place", noted=True) == "after the timing rounds, another set of weights"


def test_the_page_says_what_is_looked_at_as_the_docstring_does():
    text = inspect.cleandoc(labkit.compare.__doc__ or "")
    looks = inspect.cleandoc(text[text.index("| look | updates") : text.index("Raises:")])
    assert inspect.cleandoc("    " + looks) in (Path(labkit.__file__).parents[1] / "docs" / "speedups.md").read_text()
    for name, look in LOOKS.items():
        updates = f"1 to {look.updates}" if look.updates > 1 else "1"
        assert f"| {name} | {updates} | {look.side} x {look.side}, in {str(look.dtype)[6:]}" in looks
    near, shorter = f"{100 * FLOAT32.gradient:g} %", f"{100 * FLOAT32.distance:g} %"
    loss = f"{FLOAT32.loss:.0e}".replace("e-0", "e-")
    numbers = (
        f"rounding is {loss} of a loss, {near} of a gradient, {near} of a term's gradient and {shorter} of an update"
    )
    in_16_bits = f"rounding: {100 * BITS16.loss:g} % of a loss, and a cosine of {BITS16.cosine:g} between"
    shares = f"more than {100 * MOST_LEFT_OUT:g} % of the timed ones", f"of {BITS16.heading:g} between a layer's"
    assert all(text in " ".join(looks.split()) for text in (numbers, in_16_bits, *shares))
    assert (ROUNDS.distance, FLOAT32.gradient) == (0.25, FLOAT32.term)
