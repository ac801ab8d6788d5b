"""Training steps compared: speed, memory, and whether they compute the same."""

from __future__ import annotations

import copy
import functools
import itertools
import math
import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from tqdm.auto import tqdm

from labkit import ranks
from labkit.devices import OUT_OF_MEMORY, cudnn_benchmark
from labkit.errors import LabkitError
from labkit.measure.equivalence import EquivalenceCheck
from labkit.measure.record import Pair
from labkit.measure.roofline import matmul_rate, step_flops
from labkit.measure.same import Update
from labkit.measure.states import State, take_step
from labkit.measure.timing import alternate, interval, ratios, spread
from labkit.measure.walks import moved
from labkit.models.step import Step
from labkit.stamp import stamp
from labkit.variants.registry import SPEEDUPS, make_step

if TYPE_CHECKING:
    import pandas

SECOND_BASELINE = "{} again"  # its name: the difference between the two baselines is noise
WORTH_KNOWING = 1.05  # as long as a larger difference could have been missed, more rounds are measured ...
MOST_ROUNDS = 4  # ... up to so many times those that were asked for


def compare(
    steps: Mapping[str, Callable[[], Step]],
    batch: Pair,
    rounds: int = 10,
    warmup: int = 3,
    clock: Callable[[], float] = time.perf_counter,
    limit_s: float = 60,
) -> pandas.DataFrame:
    """Times steps in turn, in one process, and judges whether each computes the same as the first one.

    cuDNN's benchmark mode is on meanwhile, as in `labkit.fit`.

    Noise hides small differences. While it may hide one of over 5 %, the rounds are doubled, at most twice.

    Args:
        steps: functions that make a step, by name. The first is the baseline. Each is called after the same seed, so
            that steps of the same networks begin with the same weights. No two may share a model.
        batch: (real_a, real_b), (B, 3, H, W) in [-1, 1], on the models' device. With several ranks it is this
            rank's part.
        rounds: measurements of each step, at least 6, or there is no 95% interval.
        warmup: rounds that do not count.
        clock: gives seconds, by default wall time.
        limit_s: more rounds are measured only if they will have ended so many seconds after the beginning.

    Returns:
        One row a step, and a second row of the baseline ("... again", so no other may be called that), whose difference
        from the first is noise. Numbers are NaN where nothing was measured.

        | column | unit | meaning |
        |---|---|---|
        | verdict | | see below |
        | why | | the reason in words |
        | median_s | s | of a step |
        | spread | | half the interquartile range over the median |
        | times_faster, times_faster_low, times_faster_high | | than the baseline, with a 95% interval |
        | images_per_s | 1/s | pictures of either domain, of all ranks |
        | peak_bytes | B | the most in use, with weights and optimiser; NaN on a CPU, where PyTorch does not count |
        | flop_per_s | 1/s | floating-point operations |
        | share_of_peak | | flop_per_s over the measured rate of float32 products; TF32 and 16 bits may exceed it |
        | loss_difference | | the largest relative difference of a loss of the first step |
        | gradient_cosine | | the smallest cosine between a network's first gradient and the baseline's |

        ``attrs["stamp"]`` says on which machine and with which settings it was measured, ``attrs["seconds"]`` holds
        every measurement.

        The verdict is "baseline", "noise" (the second baseline), "faster", "slower", "no difference", "not equivalent",
        "another model", "inactive", "does not run" or "out of memory".

        Where it is "no difference", `why` says how large one may be that this run could not tell from noise.

        A step is "not equivalent" if it computes something else than the baseline, and `why` names the loss term,
        network, layer or pool that differs:

        | look | updates | pictures | what has to agree |
        |---|---|---|---|
        | first updates | 1 to 24 | 16 x 16, in float64 | all, to 1e-6 |
        | larger pictures | 1 | 48 x 48, in float64, one more than in the batch | all, to 1e-6 |
        | without float64 | 1 to 24 | 32 x 32, in float32 | all, to the rounding of their type |
        | the timing | all | as given, shifted each time | how far they go, to a quarter; counts; settings |
        | after the timing | 1, and 1 after loading a state | as given | all, to the rounding of their type |

        "All" is losses, each term's gradient, weights, Adam's moments, batch norm's running statistics, pools, counts
        of updates, learning rates, and that a step leaves its batch and the seed of random numbers alone. In float32,
        rounding is 1e-4 of a loss, 5 % of a gradient, 5 % of a term's gradient and 1 % of an update's length; and
        weights and moments have more than 16 binary digits.

        New steps take their first updates as in `labkit.fit`: the learning rate changes each time. The third comes
        after loading the state after the first, at 0.001 of the usual rate, the fourth at twice it. From the tenth on,
        pictures lie where the last ones lay, the nine last updates have the very same ones, and then comes `finish()`.
        Losses are read at the end. In float64, translations in evaluation mode have to agree, too, also those by an
        exponential moving average of the weights.

        Not seen is a fault that acts in none of these updates: once in a while after the 24th, only where a loss is
        small, only on pictures between the sizes, only in a batch of still another number of pictures. Nor one that is
        smaller than the rounding above, if it needs larger pictures or float32. Nor a step that asks whether it is
        watched, by its callers or by counting its calls. Of an optimiser that does not name its moments as PyTorch's
        Adam does, or keeps them elsewhere, the weights alone are compared, and after a state was loaded or after the
        timing only to a factor of 2 and in direction.

        Corners are larger where the networks need it. A step that fails in float64 is looked at without. So is one of
        a class with ``tolerance = "16-bit"`` that differs in float64. It has 16 bits' rounding: 10 % of a loss, and a
        cosine of 0.8 between a network's gradient and the baseline's, of 0.3 between a layer's. `why` says so, and how
        many updates a scaler of losses has left out; more than 10 % of the timed ones are too many. Dropout has to draw
        again in every update. It is left out where a step draws it in another order, and after the timing; a CUDA
        graph, which would continue to drop, is not looked at then.

    Raises:
        LabkitError: an argument cannot be used, or the baseline does not run.
    """
    makers = list(steps.values()) if isinstance(steps, Mapping) else []
    if not makers or not all(callable(maker) and not isinstance(maker, Step) for maker in makers):
        raise LabkitError("steps: give functions that make a step and its model, by name, the baseline first.")
    if not rounds >= 6:
        raise LabkitError(f"rounds={rounds!r}: fewer than 6 give no 95% interval. Use at least 6.")
    with torch.random.fork_rng([batch[0].device] if batch[0].is_cuda else []):
        return _compare(steps, batch, rounds, warmup, clock, time.perf_counter() + limit_s)


@cudnn_benchmark()
def _compare(
    steps: Mapping[str, Callable[[], Step]],
    batch: Pair,
    rounds: int,
    warmup: int,
    clock: Callable[[], float],
    until: float,
) -> pandas.DataFrame:
    import pandas

    baseline = next(iter(steps))
    again = SECOND_BASELINE.format(baseline)
    makers = {baseline: steps[baseline], again: steps[baseline], **steps}
    tried: dict[str, FirstUpdates] = {}
    failed: dict[str, tuple[str, str]] = {}  # verdict and reason

    def attempt(name: str, call: Callable[[], object]) -> None:
        """Calls a function of this step, unless the step has failed before. An error affects the step's row alone."""
        if name in failed:
            return
        try:
            call()
            return
        except OUT_OF_MEMORY as error:
            failed[name] = "out of memory", f"{str(error).partition('. ')[0]}, with {len(tried)} other steps in memory"
        except LabkitError as error:
            failed[name] = "does not run", str(error)
        except Exception as error:  # of a class or a function that is not ours
            failed[name] = "does not run", f"{type(error).__name__}: {error}"
        tried.pop(name, None)
        torch.cuda.empty_cache()  # here, since the handler would keep the memory that ran out
        if name in (baseline, again):
            raise LabkitError(f"{name}, the baseline, does not run: {failed[name][1]}.")

    def begin(name: str) -> None:
        own = moved(batch, 0)  # a step may overwrite it
        held = torch.cuda.memory_allocated() if batch[0].is_cuda else 0
        torch.manual_seed(0)
        with warnings.catch_warnings():  # of a speed-up that does nothing here: the verdict says so
            warnings.filterwarnings("ignore", ".*so it changes nothing", UserWarning)
            step = makers[name]()
        if not isinstance(step, Step):
            raise LabkitError(f"steps[{name!r}] makes a {type(step).__name__}: it should return a step.")
        named = [speedup for speedup in SPEEDUPS.values() if isinstance(step, speedup)]
        if reasons := [f"{one.name}: {reason}" for one in named if (reason := one.why_inactive(step.model))]:
            failed[name] = "inactive", "; ".join(reasons)
        else:
            tried[name] = first_updates(step, own, name, held)

    for name in tqdm(makers, "first steps", delay=5):
        attempt(name, functools.partial(begin, name))
    first = tried[baseline]
    if bad := [name for name, loss in first.first.losses.items() if not math.isfinite(loss)]:
        raise LabkitError(f"{baseline}, the baseline: {', '.join(bad)} is not a finite number. Is the batch finite?")
    if len({id(one.step.model) for one in tried.values()}) < len(tried):
        raise LabkitError("two steps share one model: let each function make a model of its own.")

    def timed(name: str, step: Step, real_a: Tensor, real_b: Tensor) -> None:
        attempt(name, functools.partial(take_step, step, (real_a, real_b), name))

    calls = {name: functools.partial(timed, name, one.step) for name, one in tried.items()}
    given = (moved(batch, k) for k in itertools.count(1) for _ in calls)  # no step meets pictures that it has seen
    saved = copy.deepcopy(tried[again].step.state_dict())
    began, seconds = time.perf_counter(), alternate(calls, rounds, warmup, clock=clock, given=given)
    while (n := len(seconds[baseline])) <= MOST_ROUNDS // 2 * rounds and _undecided(seconds, [*tried]):
        [late] = ranks.largest([2 * time.perf_counter() - began - until])  # after as long again; each has its own clock
        if late > 0:
            break
        more = alternate(calls, n, warmup=0, clock=clock, given=given)
        seconds = {name: [*measured, *more[name]] for name, measured in seconds.items()}
    peak = matmul_rate(batch[0].device)
    noise = interval(ratios(seconds[baseline], seconds[again]))
    images = ranks.count() * len(batch[0])
    check = EquivalenceCheck(makers[baseline], tried[again].step, batch, tried[again].begun, saved)
    rows: dict[str, dict] = {}
    for name, one in tried.items():
        numbers = _numbers(one, first, seconds[name], seconds[baseline], images, peak)
        if name == baseline:
            verdict, why = "baseline", "the others are compared with it"
        elif name == again:
            verdict, why = "noise", _against(noise)
        else:
            times, between = numbers["times_faster"], (numbers["times_faster_low"], numbers["times_faster_high"])
            verdict, why = speed_verdict(times, between, noise)
            if one.networks != first.networks:
                verdict, why = "another model", _measured(times, between)
            else:
                reason, note = check.difference(makers[name], one.step, one.begun)
                verdict, why = ("not equivalent", reason) if reason else (verdict, why)
                why += f"; {note}" if note else ""
        rows[name] = {"verdict": verdict, "why": why, **numbers}
    rows |= {name: {"verdict": verdict, "why": why} for name, (verdict, why) in failed.items()}
    table = pandas.DataFrame([rows[name] for name in makers], index=list(makers))  # NaN where a row has no number
    model = {"model": type(first.step.model).__name__, **first.step.model.settings}
    measured = {"batch_shape": list(batch[0].shape), "rounds": rounds, "peak_flop_per_s": peak, **model}
    table.attrs = {"stamp": stamp() | measured, "seconds": {name: seconds[name] for name in tried}}
    return table


def _undecided(seconds: dict[str, list[float]], names: list[str]) -> bool:
    """Whether noise may hide a difference worth knowing of the third step or a later one. The others are baselines."""
    baseline, again, *others = (seconds[name] for name in names)
    noise = interval(ratios(baseline, again))
    between = [interval(ratios(baseline, measured)) for measured in others]
    open_ones = [one for one in between if speed_verdict(1.0, one, noise)[0] == "no difference"]
    return any(hidden(*one, noise) > WORTH_KNOWING for one in open_ones)


class FirstUpdates(NamedTuple):
    """A step that has made its first three updates, and their numbers for the table."""

    step: Step
    networks: dict[str, tuple[int, ...]]  # the shapes of the weights
    flops: int  # of a plain step of the same model: work that a speed-up repeats is no progress
    first: Update  # its losses and gradients, and no more, since there may be many steps
    peak_bytes: float  # in the second and third update, without the memory in use before; NaN on a CPU
    begun: State  # after them, without what the timing is not judged by


def first_updates(step: Step, batch: Pair, name: str, held: int = 0) -> FirstUpdates:
    """Runs a new step three times. `held` is the number of bytes on the device before the step was made.

    Raises:
        LabkitError: as `take_step`.
    """
    networks = {weight: tuple(value.shape) for weight, value in step.model.state_dict().items()}
    plain = make_step(copy.deepcopy(step.model).requires_grad_(True))  # as if no network were frozen
    flops = step_flops(plain, batch)
    del plain
    first = Update.of(step, batch, name)
    if batch[0].is_cuda:
        torch.cuda.reset_peak_memory_stats()
    for _ in range(2):
        take_step(step, batch, name)
    peak_bytes = torch.cuda.max_memory_allocated() - held if batch[0].is_cuda else math.nan
    begun = State.of(step)._replace(means={}, buffers={}, pools={})
    first = first._replace(displacements={}, squares={}, after=begun)
    return FirstUpdates(step, networks, flops, first, peak_bytes, begun)


def _numbers(
    updates: FirstUpdates, first: FirstUpdates, seconds: list[float], baseline: list[float], images: int, peak: float
) -> dict[str, float]:
    """The numbers of a row, for another model without the distance from the baseline."""
    median, faster = statistics.median(seconds), ratios(baseline, seconds)
    low, high = interval(faster)
    numbers = {
        "median_s": median,
        "spread": spread(seconds),
        "times_faster": statistics.median(faster),
        "times_faster_low": low,
        "times_faster_high": high,
        "images_per_s": images / median,
        "peak_bytes": updates.peak_bytes,
        "flop_per_s": updates.flops / median,
        "share_of_peak": updates.flops / median / peak,
    }
    if updates.networks == first.networks:
        distance = updates.first.distance(first.first)
        numbers |= {"loss_difference": distance.losses, "gradient_cosine": distance.cosine}
    return numbers


def speed_verdict(times: float, between: tuple[float, float], noise: tuple[float, float]) -> tuple[str, str]:
    """Whether a step that is `times` faster, with the interval `between`, differs by more than the baseline's `noise`.

    Returns:
        "faster", "slower" or "no difference", and the numbers in words.
    """
    if between[0] > reach(*noise):
        return "faster", _measured(times, between)
    if between[1] < 1 / reach(*noise):
        return "slower", _measured(times, between)
    text = f"none above {hidden(*between, noise):.2f}: {_measured(times, between)}; {_against(noise)}"
    return "no difference", text


def reach(low: float, high: float) -> float:
    """How many times faster or slower than itself the baseline may seem, from the interval of its copy's ratios.

    Either copy could have been the first, so that noise reaches as far below 1 as above.
    """
    return max(high, 1 / low)


def hidden(low: float, high: float, noise: tuple[float, float]) -> float:
    """How many times faster or slower a step may be, of which this run cannot say more than "no difference"."""
    return max(reach(low, high), reach(*noise))


def _measured(times: float, between: tuple[float, float]) -> str:
    return f"{times:.3f} times faster, between {between[0]:.3f} and {between[1]:.3f}"


def _against(noise: tuple[float, float]) -> str:
    return f"the baseline against itself: between {noise[0]:.3f} and {noise[1]:.3f}"
