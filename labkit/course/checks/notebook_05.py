"""Checks of notebook 05: host and GPU side by side, fewer passes, and what a recorded step does again."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from labkit.course.checks.answers import WrongAnswer, instead, passed, require
from labkit.course.tape import Tape
from labkit.models.cyclegan import Cycle, CycleGAN
from labkit.step import Step
from labkit.variants.registry import make_step

SMALL = dict(generator="resnet_3blocks", discriminator="n_layers", n_layers=2, ngf=4, ndf=4)
HINTS = {  # by what was expected of a replay and does not come out
    "right": "what in it does Python do, remember or ask for? Only operations on tensors are recorded.",
    "stale": "what would be old? Follow each value that changes: is it in a tensor, and does that keep its place?",
    "refused": "an error comes only where the host asks for a tensor's value, and it does so in none of these lines.",
}


def estimate(answer: Callable[[float, float, float], tuple[float, float]]) -> None:
    """Holds ``answer(launches, host_us, busy_us)``, microseconds of a step and its idle share, to the longer side."""
    for launches, host_us, busy_us in ((3000, 40, 45_000), (3000, 10, 45_000), (1, 20, 45_000), (1000, 45, 45_000)):
        got = answer(launches, host_us, busy_us)
        require(
            isinstance(got, tuple) and len(got) == 2,
            "a pair is expected, (microseconds, idle share), "
            + (f"not {len(got)} values." if isinstance(got, tuple) else instead(got)),
        )
        host = launches * host_us
        right = max(host, busy_us), 1 - busy_us / max(host, busy_us)
        where = f"{launches} launches of {host_us} us on the host, kernels of {busy_us} us: your answer is {got}"
        require(
            not math.isclose(got[0], host + busy_us),
            f"{where}. Host and GPU do not take turns: while the GPU works, the host launches what comes next.",
        )
        require(
            not math.isclose(got[0], min(host, busy_us)) or host == busy_us,
            f"{where}. The step is over when both are done: take the longer of the two.",
        )
        require(math.isclose(got[0], right[0]), f"{where}, the step takes {right[0]:g} us.")
        require(
            math.isclose(got[1], right[1], abs_tol=1e-9),
            f"{where}. The idle share is the part of the step's {right[0]:g} us in which the GPU has no kernel: "
            f"{right[1]:.3f}.",
        )
    passed("estimate")


def batched(answer: type) -> None:
    """Holds a class that puts passes together to `labkit.variants.batched.Batched`.

    Args:
        answer: overrides `cycle` and `judge`, and says in `unsuited` which model it is not for.

    Raises:
        WrongAnswer: a result differs from the baseline's, there are more passes than needed, or batch norm is let in.
    """
    torch.manual_seed(0)
    model = CycleGAN(**SMALL).double()
    real, other, third = (torch.rand(2, 3, 32, 32, dtype=torch.float64) * 2 - 1 for _ in range(3))
    plain, step = make_step(model), make_step(model, answer)
    _hold_one_cycle(step, plain, model, real, other)
    _hold_judge(step, plain, model, real, third)
    _hold_batch_norm(answer, model)
    for settings in (SMALL, SMALL | {"lambda_identity": 0.0}):
        losses = []
        for own in ((), (answer,)):
            torch.manual_seed(1)
            whole = make_step(CycleGAN(**settings).double(), *own)
            losses.append([whole(real, other) for _ in range(2)][-1])  # those of the second step follow from gradients
        wrong = [name for name, loss in losses[0].items() if not torch.allclose(losses[1][name], loss, rtol=1e-9)]
        require(not wrong, f"after one update {', '.join(wrong)} differ from the baseline's: is a gradient cut off?")
    passed("batched")


def _hold_one_cycle(step: Step, plain: Step, model: nn.Module, real: Tensor, other: Tensor) -> None:
    right = plain.cycle(model.G_A, model.G_B, real, other)
    with _passes(model) as sizes:
        cycle = step.cycle(model.G_A, model.G_B, real, other)
    require(isinstance(cycle, Cycle), f"cycle returns a Cycle(fake, back, same), {instead(cycle)}")
    require(
        not _equal(cycle.fake, right.same),
        "fake and same are mixed up: chunk gives the parts in the order in which cat put them together.",
    )
    n = len(real)
    for name, pictures in cycle._asdict().items():
        require(
            isinstance(pictures, Tensor) and len(pictures) == n,
            f"cycle: {name} is to have {n} pictures, as real has. chunk(2) cuts a batch into two halves.",
        )
    require(
        len(sizes["G_A"]) == 1,
        f"`go` is run {len(sizes['G_A'])} times: put real and other together with torch.cat, and run it once.",
    )
    require(
        sizes["G_B"] == [n],
        f"`back` is run on batches of {sizes['G_B']}: it is needed once, for the {n} fakes alone.",
    )
    for name in Cycle._fields:
        require(_equal(getattr(cycle, name), getattr(right, name)), f"cycle: {name} is not the baseline's.")
    try:
        alone = step.cycle(model.G_A, model.G_B, real, None)
    except (TypeError, AttributeError) as error:
        raise WrongAnswer(
            f"without an identity loss `other` is None, and your cycle fails ({error}): leave that case to "
            "super().cycle."
        ) from error
    require(
        isinstance(alone, Cycle) and alone.same is None and _equal(alone.fake, right.fake),
        "without an identity loss `other` is None, and so is `same`: leave that case to super().cycle.",
    )


def _hold_judge(step: Step, plain: Step, model: nn.Module, real: Tensor, fake: Tensor) -> None:
    right = plain.judge(model.D_A, real, fake)
    with _passes(model) as sizes:
        verdicts = step.judge(model.D_A, real, fake)
    require(
        isinstance(verdicts, tuple | list),
        f"judge returns two tensors, the verdicts on real and those on fake, {instead(verdicts)}",
    )
    require(
        len(verdicts) == 2,
        f"judge returns two tensors, the verdicts on real and those on fake; here are {len(verdicts)}.",
    )
    require(
        not _equal(verdicts[0], right[1]), "judge: the verdicts on real come first, then those on fake; yours are not."
    )
    require(
        all(_equal(got, expected) for got, expected in zip(verdicts, right, strict=True)),
        "judge: the verdicts are not the baseline's. Is each picture judged once, and cut off at the right place?",
    )
    require(
        len(sizes["D_A"]) == 1,
        f"the discriminator is run {len(sizes['D_A'])} times: put real and fake together with torch.cat as well.",
    )


def _hold_batch_norm(answer: type, model: nn.Module) -> None:
    unsuited = getattr(answer, "unsuited", None)
    require(callable(unsuited), "unsuited(model) is missing: it says for which model the class is not exact.")
    try:
        reason, none = unsuited(CycleGAN(**SMALL, norm="batch")), unsuited(model)
    except TypeError as error:
        raise WrongAnswer(
            f"unsuited is asked of the class, with the model alone: put @staticmethod ({error})."
        ) from error
    except Exception as error:
        raise WrongAnswer(
            f"unsuited raises {error!r}: it is to return the reason, or None, and to raise nothing."
        ) from error
    require(
        isinstance(reason, str) and reason.strip() != "",
        "unsuited: a model with batch norm is let in. Its mean would be taken over pictures of two kinds: say so.",
    )
    require(none is None, "unsuited: a model with instance norm is refused, though each picture is alone.")


@contextmanager
def _passes(model: nn.Module) -> Iterator[dict[str, list[int]]]:
    """Inside, notes for each network how many pictures each of its passes had."""
    sizes = defaultdict(list)
    hooks = [
        network.register_forward_pre_hook(lambda _, inputs, name=name: sizes[name].append(len(inputs[0])))
        for name, network in model.named_children()
    ]
    try:
        yield sizes
    finally:
        for hook in hooks:
            hook.remove()


def _equal(a: object, b: Tensor) -> bool:
    return isinstance(a, Tensor) and a.shape == b.shape and torch.allclose(a, b, rtol=1e-9, atol=1e-9)


def replay_side_by_side(step: Callable[[Tensor, SimpleNamespace], Tensor]) -> tuple[list[Tensor], list[Tensor] | str]:
    """What ``step(a, memory)`` gives for three inputs when it is called anew, and when it is recorded and replayed.

    `memory` is fresh for each of the two: `rate`, a Python number; `rate_tensor`, a tensor of no dimension; `total`,
    a tensor of the input's shape. In place of the second list stands the error if the step cannot be recorded.
    """
    inputs = [torch.tensor(values) for values in ([1.0, 2.0, 3.0], [-1.0, 0.5, 2.0], [2.0, 1.0, 4.0])]

    def fresh() -> SimpleNamespace:
        return SimpleNamespace(rate=1.0, rate_tensor=torch.tensor(1.0), total=torch.zeros(3))

    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        memory = fresh()
        anew = [step(a, memory).clone() for a in inputs]
        torch.manual_seed(0)
        memory, static = fresh(), inputs[0].clone()
        try:
            with Tape() as tape:
                result = step(static, memory)
        except RuntimeError as error:
            return anew, str(error)
        replayed = [result.clone()]
        for a in inputs[1:]:
            static.copy_(a)
            tape.replay()
            replayed.append(result.clone())
    return anew, replayed


def outcome(step: Callable[[Tensor, SimpleNamespace], Tensor]) -> str:
    """Whether a replay of ``step(a, memory)`` is "right" or "stale", or its recording "refused"."""
    anew, replayed = replay_side_by_side(step)
    if isinstance(replayed, str):
        return "refused"
    return "right" if all(map(torch.allclose, anew, replayed)) else "stale"


def replayed(answer: Mapping[str, str], steps: Mapping[str, Callable]) -> None:
    """Holds what a student expects of replays, by the step's name, to what comes out."""
    require(
        isinstance(answer, Mapping) and answer.keys() == steps.keys(), f"a dict is expected with the keys {[*steps]}."
    )
    for name, step in steps.items():
        require(answer[name] in HINTS, f"{name}: put one of {', '.join(HINTS)}, not {answer[name]!r}.")
        require(answer[name] == outcome(step), f"{name} is not {answer[name]}: {HINTS[answer[name]]}")
    passed("replayed")


def captured(answer: type) -> None:
    """Holds a class that records a body once, and replays it for each new input."""
    calls = []

    def body(a: Tensor) -> Tensor:
        calls.append(a)
        return torch.relu(a - 1) * 2

    example, inputs = torch.full((2, 3), 5.0), [torch.arange(6.0).reshape(2, 3) + shift for shift in (0, 1)]
    capture = answer(body, example)
    first = capture(inputs[0])
    require(isinstance(first, Tensor), f"__call__ is to return the result, a tensor, {instead(first)}")
    right = [torch.relu(a - 1) * 2 for a in inputs]
    kept = first.clone()
    require(
        not torch.equal(kept, torch.full((2, 3), 8.0)),
        "the result is that of the example: a replay reads the memory that was recorded. Copy the new input there with "
        "copy_; giving a name to another tensor moves nothing.",
    )
    require(torch.equal(kept, right[0]), "the result is not the body's. Copy the input first, and replay then.")
    capture(inputs[1])
    require(
        len(calls) == 1,
        f"after two calls the body has run {len(calls)} times in Python: record it once, in __init__, and replay.",
    )
    require(
        torch.equal(first, kept),
        "the first result has changed with the second call: every replay writes to the same memory. Return a copy "
        "(clone).",
    )
    require(
        torch.equal(example, torch.full((2, 3), 5.0)),
        "the example that was handed to you has changed: keep a clone of it as the memory that replays read.",
    )
    for other in (inputs[0][:1], inputs[0][:, :1], inputs[0].reshape(3, 2)):
        where = f"an input of shape {tuple(other.shape)}, where (2, 3) was recorded,"
        try:
            capture(other)
        except ValueError:
            continue
        except Exception as error:
            raise WrongAnswer(f"{where} raises {error!r}: compare the shapes first, and raise a ValueError.") from error
        raise WrongAnswer(f"{where} passes: copy_ repeats it to fit. Raise a ValueError if the shape is another.")
    passed("captured")
