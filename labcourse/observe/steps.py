"""What is seen of an answer that is a part of CycleGAN's training step."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast
from unittest.mock import Mock

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from labcourse.kinds import kind
from labcourse.observe.mistake import MistakeFound, hint
from labcourse.races import RaceRecorder, record
from labkit.models.cyclegan import Cycle, CycleGAN, CycleGANStep, Journey
from labkit.models.step import Step
from labkit.simulate.cuda_stubs import Stream, StreamError
from labkit.variants.registry import make_step


def small_model(seed: int, **settings: Any) -> CycleGAN:
    """A CycleGAN of small networks, whose weights depend on the seed alone."""
    small: dict[str, Any] = {
        "generator": "resnet_3blocks",
        "discriminator": "n_layers",
        "n_layers": 2,
        "ngf": 4,
        "ndf": 4,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return CycleGAN(**small | settings)


class _Around:
    """Stands before the answer in the stack of a step's classes.

    It checks the cycles that the answer returns, and computes the losses on another stream than main if asked to.
    """

    on_another_stream = False
    whole = 0  # cycles that `self.cycle` has given, with the identity pictures

    def cycle(self, *journey: Any, **named: Any) -> Cycle:
        cycle = super().cycle(*journey, **named)  # type: ignore[misc]  # the answer's, or a step's
        self.whole += cycle.same is not None
        return cycle

    def cycles(self, journeys: Sequence[Journey]) -> list[Cycle]:
        before, self.whole = Stream.timekeeper.current, 0
        cycles = super().cycles(journeys)  # type: ignore[misc]
        found = [type(cycle) for cycle in cycles] if isinstance(cycles, tuple | list) else kind(cycles)
        if found != [Cycle, Cycle]:
            told = f"`cycles` must return two Cycles, A -> B -> A and B -> A -> B, not {found}: "
            raise MistakeFound(told + "run both cycles before you return tuple(cycles).")
        if self.whole != 2:
            told = f"self.cycle gave {self.whole} cycles with identity pictures, and two are needed: "
            raise MistakeFound(told + "call self.cycle(*journey), with all four fields, for each journey.")
        if (left := Stream.timekeeper.current) is not before:
            told = f"torch.cuda.set_stream leaves {left.name} on for the code that follows: "
            raise MistakeFound(told + f"set {before.name} again, or use `with torch.cuda.stream(...)`.")
        return cycles

    def losses(self, player: str, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        if not self.on_another_stream:
            return super().losses(player, batch)  # type: ignore[misc]
        outer, main = Stream(number=-1), Stream.timekeeper.current
        outer.name = "outer"
        outer.wait_stream(main)
        with outer:
            losses = super().losses(player, batch)  # type: ignore[misc]
        main.wait_stream(outer)
        return losses


def streams_used(answer: type, seed: int, real_a: Tensor, real_b: Tensor, others: list[str]) -> dict[str, Any]:
    """What a class does that runs the two cycles on two streams, in two calls of the generators' losses.

    The second call runs while another stream than main, called outer, is the current one.

    Args:
        seed: of the model's weights, see `small_model`.
        others: names of further speed-ups of the step.

    Returns:
        | key | meaning |
        |---|---|
        | losses, gradients | of the first call |
        | sides | side streams that have work in it |
        | made | side streams that were made, by the first call and by the second |
        | in_class | whether a stream is kept in the class |
        | races | messages of races, in the first call and in the second |
        | overlap | whether a side stream begins before another is done |
        | host_waits | whether the host waits |

    Raises:
        MistakeFound: it returns other than two cycles, or uses streams that cannot be followed.
    """
    with hint("Leave __init__ out, and make the streams in cycles, once."):
        step = make_step(small_model(seed), _Around, answer, *others, emulate=True)
    recorder, losses = _recorded(step, real_a, real_b)
    step.backward(torch.stack([*losses.values()]).sum(), "generators")
    gradients = [weight.grad for weight in step.players["generators"]]
    step.on_another_stream = True  # type: ignore[attr-defined]
    second, _ = _recorded(step, real_a, real_b)
    clocks = recorder.clocks
    sides = [stream for stream in clocks.begun if stream is not clocks.main]
    pairs = itertools.combinations(sides, 2)
    return {
        "losses": losses,
        "gradients": gradients,
        "sides": len(sides),
        "made": (clocks.made, second.clocks.made),
        "in_class": any(isinstance(leaf, Stream) for leaf in tree_leaves(list(vars(answer).values()))),
        "races": [[race.message for race in each.races()] for each in (recorder, second)],
        "overlap": any(clocks.begun[late][early] < clocks.of[early][early] for early, late in pairs),
        "host_waits": bool(clocks.host),
    }


def _recorded(step: Step, real_a: Tensor, real_b: Tensor) -> tuple[RaceRecorder, dict[str, Tensor]]:
    """`labcourse.races.record`; streams that it cannot follow are the answer's fault."""
    try:
        return record(lambda **batch: step.losses("generators", batch), step.model, real_a=real_a, real_b=real_b)
    except StreamError as error:
        raise MistakeFound(str(error)) from error


def batched_passes(answer: Any, seed: int, real: Tensor, other: Tensor, third: Tensor) -> dict[str, Any]:
    """What a class does that overrides `cycle`, `judge` and `why_unsuited`, with a model of `small_model` in float64.

    Returns:
        | key | meaning |
        |---|---|
        | cycle, verdicts | what the methods return for `real` and `other`, `real` and `third` |
        | sizes | of the batches that went through G_A and G_B in `cycle`, and D_A in `judge` |
    """
    model = small_model(seed).double()
    sizes: defaultdict[str, list[int]] = defaultdict(list)
    for name, network in model.named_children():
        network.register_forward_pre_hook(lambda _, inputs, name=name: sizes[name].append(len(inputs[0])))
    step = cast(CycleGANStep, make_step(model, answer))
    cycle = step.cycle(model.G_A, model.G_B, real, other)
    if not isinstance(cycle, Cycle):
        raise MistakeFound(f"cycle returns a Cycle(fake, back, same), not {kind(cycle)}.")
    verdicts = step.judge(model.D_A, real, third)
    passes = [sizes[name] for name in ("G_A", "G_B", "D_A")]
    return {"cycle": tuple(cycle), "verdicts": tuple(verdicts), "sizes": passes}


def batched_training(answer: Any, seed: int, real: Tensor, other: Tensor, identity: list[float]) -> dict[str, Any]:
    """What the class of `batched_passes` does otherwise, with the same model.

    Returns:
        | key | meaning |
        |---|---|
        | reasons | why it is unsuited for batch norm in each network alone, by the network's name |
        | reason | the same for the model, which has no batch norm |
        | losses | of the second of two whole steps on `real` and `other`, with each weight of the `identity` loss |
    """
    model = small_model(seed).double()
    reasons = {}
    with hint("why_unsuited is called on the class, with the model alone: put @staticmethod, and return the reason."):
        reason = answer.why_unsuited(model)
        for name, _ in model.named_children():
            unsuited = small_model(seed)
            setattr(unsuited, name, nn.Sequential(nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False))))
            reasons[name] = answer.why_unsuited(unsuited.eval())
    losses = []
    with hint("without an identity loss `other` is None, and so is `same`: leave that case to super().cycle."):
        for weight in identity:
            step = make_step(small_model(seed, lambda_identity=weight).double(), answer)
            losses.append([step(real, other) for _ in range(2)][-1])
    return {"reasons": reasons, "reason": reason, "losses": losses}


def one_update(
    answer: Callable[[torch.amp.GradScaler, Mapping[str, torch.optim.Optimizer], float], None],
    gradients: dict[str, Tensor],
    overflowed: str | None,
    scale: float,
    max_norm: float,
) -> dict[str, Any]:
    """What ``answer(scaler, optimizers, max_norm)`` does with the scaled gradients of two players.

    Args:
        gradients: of each player, unscaled. The weights are 0, and the optimisers SGD with a rate of 1.
        overflowed: the player whose last weight has an inf in its scaled gradient.

    Returns:
        "weights" of each player after it, one for each number of its gradient, the number of "updates" of the "scale",
        and whether gradients are "left".
    """
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    updates = Mock(wraps=scaler.update)
    scaler.update = updates  # type: ignore[method-assign]
    weights = {player: [nn.Parameter(torch.zeros(())) for _ in gradient] for player, gradient in gradients.items()}
    optimizers = {player: torch.optim.SGD(own, lr=1.0) for player, own in weights.items()}
    for player, own in weights.items():
        scaler.scale((torch.stack([*own]) * gradients[player]).sum()).backward()
    if overflowed:
        weights[overflowed][-1].grad = torch.tensor(math.inf)
    answer(scaler, optimizers, max_norm)
    left = any(weight.grad is not None and bool(weight.grad) for own in weights.values() for weight in own)
    after = {player: torch.stack([*own]).detach() for player, own in weights.items()}
    return {"weights": after, "updates": updates.call_count, "scale": scaler.get_scale(), "left": left}


def part_by_part(
    answer: Callable[[Step, Tensor, Tensor, int], None], seed: int, real_a: Tensor, real_b: Tensor, k: int
) -> dict[str, Any]:
    """The gradients that ``answer(step, real_a, real_b, k)`` leaves, and how it came to them.

    Returns:
        | key | meaning |
        |---|---|
        | gradients | of each player's weights, None where there is none |
        | pictures | in each batch whose losses were asked for |
        | kept | whether losses were asked for while earlier ones of the player had not gone backward |
        | weights_kept | whether the weights are as they were |
    """
    waiting: set[str] = set()  # players whose losses have not gone backward yet
    kept: set[str] = set()  # players whose losses were asked for while earlier ones waited
    sizes: list[int] = []  # pictures in each batch whose losses were asked for

    class PartByPart:
        def losses(self, player: str, batch: dict[str, Tensor]) -> dict[str, Tensor]:
            sizes.append(len(batch["real_a"]))
            kept.update(waiting & {player})
            waiting.add(player)
            losses = super().losses(player, batch)  # type: ignore[misc]  # this class stands before a step
            for loss in losses.values():
                loss.register_hook(lambda _gradient: waiting.discard(player))
            return losses

    model = small_model(seed, pool_size=0).double()
    step = make_step(model, PartByPart)
    before = [weight.detach().clone() for weight in model.parameters()]
    answer(step, real_a, real_b, k)
    return {
        "gradients": {player: [weight.grad for weight in step.players[player]] for player in step.players},
        "pictures": sizes,
        "kept": bool(kept),
        "weights_kept": all(map(torch.equal, model.parameters(), before)),
    }
