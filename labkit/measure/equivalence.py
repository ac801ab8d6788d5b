"""Whether a step computes the same as the baseline: the looks at it, each with its tolerances.

New steps take their first updates on corners of the pictures, and timed steps a few more afterwards.
`labkit.measure.same` then compares the updates. docs/speedups.md has a table of what each look can see.
"""

from __future__ import annotations

import copy
import functools
from typing import Any

import torch
from torch import Tensor

from labkit import ranks
from labkit.devices import OUT_OF_MEMORY, precision
from labkit.errors import LabkitError
from labkit.measure.record import Pair
from labkit.measure.same import NOT_COMPARED, Tolerances, Update, first_difference, left_out, way_difference
from labkit.measure.states import State, displaced, rounded
from labkit.measure.timing import has_tf32
from labkit.measure.walks import LOOKS, Look, Maker, computing_in, in_one_update, moved, without_dropout
from labkit.models.step import Step
from labkit.variants import has_dropout
from labkit.variants.registry import SPEEDUPS

# Seen in float64: 1e-12, but a graph holds its learning rate in float32. In float32, from one state: losses 4e-6;
# gradients 2e-2, where rounding turns the sign of a pixel in an L1 loss; terms 3e-3; displacements 1e-2, and 0.1 in
# Adam's first update, which takes signs; distances 4e-4. Weights rounded to bfloat16 go 0.2 elsewhere. In 16 bits, on
# pictures of 32 pixels or more: losses 1e-2, cosines of gradients 0.86 (0.94 to 0.97 on an H200, at 256 pixels) and of
# a layer's 0.82, terms 0.2, distances 7e-2, cosines of displacements 0.9, changes of second moments 0.6; on 16 pixels
# rounding is far worse.
FLOAT64 = Tolerances(
    loss=1e-6,
    gradient=1e-6,
    cosine=-1.0,
    term=1e-6,
    missing_term=1e-3,
    smallest_term=1e-3,
    rounding=NOT_COMPARED,
    displacement=1e-6,
    distance=1e-6,
    heading=-1.0,
    kept=1e-6,
    exact=True,
)
NEAR = 0.05  # how far float32 may be from a gradient: a network's, or one term's in it
FLOAT32 = FLOAT64._replace(
    loss=1e-4,
    gradient=NEAR,
    term=NEAR,
    missing_term=NEAR,
    smallest_term=NEAR,
    displacement=0.15,
    distance=1e-2,
    kept=NEAR,
    exact=False,
)
TF32 = FLOAT32._replace(loss=1e-2, gradient=0.1, displacement=NOT_COMPARED, distance=5e-2)
BITS16 = FLOAT32._replace(
    loss=0.1,
    gradient=1.0,
    cosine=0.8,
    term=NOT_COMPARED,
    missing_term=0.25,
    rounding=0.6,
    displacement=NOT_COMPARED,
    distance=0.25,
    heading=0.3,
    kept=0.5,
)
# All rounds of the timing, each step by itself. Seen after 13 and 40, from float32 to 16 bits: distances 0.97 to 1.04
# times the baseline's, cosines from 0.33 on, second moments 0.91 to 1.14 times.
ROUNDS = FLOAT32._replace(displacement=NOT_COMPARED, distance=0.25, heading=0.0, kept=0.5)
TRANSLATED = 1e-5  # a difference of translations by rounding, as a share
LATER = 24  # an update after the timing, as its pictures and random numbers are counted
MOST_LEFT_OUT = 0.1  # of the timed updates, by a scaler of losses


class EquivalenceCheck:
    """Compares steps that have been timed with the baseline.

    Args:
        maker: makes the baseline.
        baseline: a baseline that has been timed. Its state changes here.
        batch: (real_a, real_b), as in the timing.
        begun: the baseline's state before the timing.
        saved: the same as a `state_dict`.
    """

    def __init__(self, maker: Maker, baseline: Step, batch: Pair, begun: State, saved: dict[str, Any]) -> None:
        self.maker, self.baseline, self.batch, self.saved = maker, baseline, batch, saved
        self.begun, self.state = begun, copy.deepcopy(baseline.state_dict())
        self.timed = Update.between(begun, State.of(baseline), {}, {})
        self.looks = [look.within(batch, baseline.model) for look in LOOKS.values()]
        self.draws = has_dropout(baseline.model)
        self.full_pools = functools.cache(functools.partial(Look.full_pools, maker=maker, batch=batch))
        self.walked = functools.cache(functools.partial(self.walk, maker))  # the same for every step that is judged

    def walk(self, maker: Maker, look: Look) -> tuple[Update, list[Tensor]]:
        """`Look.walk` of a new step."""
        return look.walk(maker, self.full_pools(look), self.draws, self.batch)

    def difference(self, maker: Maker, step: Step, begun: State) -> tuple[str | None, str]:
        """How the step, `begun` before the timing, differs from the baseline, or None, and a note in words, or ""."""
        note, rounds = "", declaring_16_bits(step)
        own = [base for base in rounds if base not in SPEEDUPS.values()]

        def new() -> Step:
            if (made := maker()).model is step.model:
                raise LabkitError("the function that makes it gives one model each time")
            return made

        for look in self.looks:
            exact = look.dtype == torch.float64
            if exact == bool(note):
                continue  # autocast leaves float64 alone, so it is asked first
            try:
                reason = self.in_look(new, look, FLOAT64 if exact else BITS16 if rounds else FLOAT32)
            except Exception as error:  # of classes that are not ours
                note = note or f"float64 could not be tried ({error})"
                continue
            if reason and not (exact and own):
                return reason, note
            note = f"in float64, {reason}; so it was held to the rounding of 16 bits" if reason else note
        try:
            reason, more = self.after_timing(step, begun)
        except OUT_OF_MEMORY:
            return None, "the memory did not suffice for another look after the timing"
        except Exception as error:
            reason, more = str(error), ""
        return f"after the timing rounds, {reason}" if reason else None, "; ".join(filter(None, (note, more)))

    def in_look(self, maker: Maker, look: Look, allowed: Tolerances) -> str | None:
        """How new steps of both kinds differ in a look."""
        reason = None
        with computing_in(look.dtype):
            if allowed.exact:
                (mine, shown), (right, its_shown) = self.walk(maker, look), self.walked(look)
                apart = ranks.first(first_difference(mine, right, allowed, dict))
                alike = all(
                    (own - its).norm() <= TRANSLATED * its.norm() for own, its in zip(shown, its_shown, strict=True)
                )
                if not apart and all(ranks.gathered(alike)):
                    return None
                if self.draws:  # maybe in another order
                    reason = ranks.first(self.repeated_draws(maker, look))
                elif not apart or mine.gradients.keys() == right.gradients.keys():  # else loading loses its moments
                    reason = f"after {look.updates} updates, {apart or 'it translates otherwise in evaluation mode'}"
            return self.first_fault(maker, look, allowed) or reason

    def repeated_draws(self, maker: Maker, look: Look) -> str | None:
        """A loss that does not depend on random numbers, and the baseline's does, in words, or None."""
        pictures = next(look.pictures(self.batch))
        mine, right = (
            [Update.of(look.new(one, None, dropout=True), pictures, seed=seed) for seed in (1, 2)]
            for one in (maker, self.maker)
        )
        for loss, value in right[0].losses.items():
            if value != right[1].losses[loss] and mine[0].losses.get(loss) == mine[1].losses.get(loss):
                return f"{loss} is the same with other random numbers, and the baseline's is not"
        return None

    def first_fault(self, maker: Maker, look: Look, allowed: Tolerances) -> str | None:
        """How the first update of a look that differs does so, each compared with the baseline's."""
        steps = [look.new(one, self.full_pools(look)) for one in (maker, self.maker)]
        weights, right = (State.of(step).weights for step in steps)
        for weight, its in right.items():
            if not (weights[weight] - its).norm() <= FLOAT64.loss * its.norm():
                return f"{weight} does not begin as the baseline's"
        for (k, batch), _ in zip(*(look.turns(step, self.batch) for step in steps), strict=True):
            if reason := in_one_update(steps[0], steps[1], batch, k - 1, allowed):
                return f"in update {k}, {reason}" if k > 1 else reason
            learned = [State.of(step) for step in steps]
        changed, right_changed = map(displaced, learned, map(State.of, steps))
        return None if changed == right_changed else f"finish() changes {(changed + right_changed)[0]}"

    def after_timing(self, step: Step, begun: State) -> tuple[str | None, str]:
        """How a timed step's way in the rounds, or an update after them, differs from the baseline's, and a note."""
        allowed, in_16_bits, note = timed_tolerances(step), declaring_16_bits(step), ""
        timed = Update.between(begun, State.of(step), {}, {})
        missed = left_out(timed.after, self.timed.after) if in_16_bits else 0  # by a scaler, some of them to begin with
        if missed:
            taken, since = left_out(self.begun, self.timed.after), missed - left_out(begun, self.begun)
            note = f"{missed} updates were left out, {since} of them in the {taken} timed ones"
            if since > max(1, MOST_LEFT_OUT * taken):
                return note, ""
            timed = timed._replace(after=timed.after._replace(counts=self.timed.after.counts))
        if reason := way_difference(timed, self.timed, ROUNDS):
            return reason, note
        if not in_16_bits and (short := [one for one in rounded(timed.after) if one not in rounded(self.timed.after)]):
            return f"{short[0]} is rounded to 16 bits", note
        if self.draws:  # it may draw in another order
            if isinstance(step, SPEEDUPS["graph"]):
                return None, note  # what it has captured continues to drop
            without_dropout(step)
            without_dropout(self.baseline)
        self.baseline.load_state_dict(copy.deepcopy(self.state))  # steps judged before have moved it on ...
        self.baseline.model.zero_grad()  # ... or failed while it took their update
        if displaced(self.timed.after, State.of(self.baseline)):
            raise LabkitError("the baseline does not go back to the state that it was timed in")
        if reason := in_one_update(step, self.baseline, moved(self.batch, LATER), LATER, allowed):
            return reason, note
        self.baseline.load_state_dict(copy.deepcopy(self.saved))  # as a run that continues from another's checkpoint
        return in_one_update(step, self.baseline, moved(self.batch, LATER + 1), LATER + 1, allowed, loads=True), note


def timed_tolerances(step: Step) -> Tolerances:
    """The tolerances for a timed step."""
    weight = next(step.model.parameters())
    rounded_to = precision("cuda" if weight.is_cuda else "mkldnn", "conv")
    if declaring_16_bits(step) or (rounded_to == "bf16" and weight.dtype == torch.float32):
        return BITS16
    if weight.dtype == torch.float64:
        return FLOAT64
    return TF32 if rounded_to == "tf32" and (has_tf32(weight.device) or weight.is_cpu) else FLOAT32


def declaring_16_bits(step: Step) -> list[type]:
    """The classes of the step, labkit's or the caller's, that say ``tolerance = "16-bit"``."""
    return [base for base in type(step).__mro__ if vars(base).get("tolerance") == "16-bit"]
