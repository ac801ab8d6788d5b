"""The race checker names the raced tensor and the missing wait, and leaves everything as it found it."""

import contextlib
import copy

import pytest
import torch

import labkit
from labcourse.check import notebook_04
from labcourse.check.answers import WrongAnswer
from labcourse.races import find_races
from labkit.models.cyclegan import Cycle
from labkit.simulate.cuda_stubs import StreamError

BOTH_SIDES = {("main", "side 1"), ("main", "side 2")}
BACK_FROM_BOTH = {("side 1", "main"), ("side 2", "main")}


class Right:
    """Two streams, step by step; every planted mistake below changes one of the steps."""

    sides = None

    def cycles(self, journeys):
        self.real_a, self.main = journeys[0].real, torch.cuda.current_stream()
        self.sides = self.sides or [torch.cuda.Stream(), torch.cuda.Stream()]
        self.cast()
        self.fork()
        cycles = []
        for side, journey in zip(self.sides, journeys, strict=True):
            with torch.cuda.stream(side):
                cycles.append(self.cycle(*journey))
        self.join()
        self.mark(cycles)
        return tuple(cycles)

    def cast(self):
        if torch.is_autocast_enabled("cuda"):
            for generator in (self.model.G_A, self.model.G_B):
                generator(self.real_a[:0])

    def fork(self):
        for side in self.sides:
            side.wait_stream(self.main)

    def join(self):
        for side in self.sides:
            self.main.wait_stream(side)

    def mark(self, cycles):
        for cycle in cycles:
            for pictures in cycle:
                pictures.record_stream(self.main)


def without(step, answer=Right):
    """An answer that leaves one step out."""
    return type(f"{answer.__name__} without {step}", (answer,), {step: lambda self, *cycles: None})


NoFork, NoJoin, NoCast = (without(step) for step in ("fork", "join", "cast"))


class OwnInputs(NoFork):
    """The inputs are made on the side streams themselves, so only the weights are left to race."""

    def cycle(self, go, back, real, other):
        return super().cycle(go, back, torch.zeros(1, 3, 32, 32), torch.zeros(1, 3, 32, 32))


class Overwrites(Right):
    def join(self):
        self.real_a.clamp_(-1, 1)
        super().join()


class RecordedOnTheWrongStream(Right):
    def mark(self, cycles):
        for side, cycle in zip(self.sides, cycles, strict=True):
            for pictures in cycle:
                pictures.record_stream(side)


class CastAfterTheFork(Right):
    def cast(self):
        self.fork()
        super().cast()
        self.fork = lambda: None


class Events(Right):
    def fork(self):
        ready = torch.cuda.Event()
        ready.record()
        for side in self.sides:
            side.wait_event(ready)

    def join(self):
        for side in self.sides:
            self.main.wait_event(side.record_event())


class EventRecordedTooEarly(Right):
    def fork(self):
        super().fork()
        self.done = [side.record_event() for side in self.sides]

    def join(self):
        for event in self.done:
            event.wait(self.main)


class Synchronize(Right):
    def fork(self):
        torch.cuda.synchronize()

    join = fork


class SynchronizeEach(Right):
    def join(self):
        for side in self.sides:
            side.synchronize()


SynchronizeOnly = without("mark", Synchronize)


class OneTooMany(Right):
    """Three streams at the first call, of which two have work."""

    def fork(self):
        self.sides = [torch.cuda.Stream(), *self.sides[:1]]
        super().fork()


class SetsTheStream(Right):
    def fork(self):
        super().fork()
        torch.cuda.set_stream(self.sides[0])


class NoIdentity(Right):
    def cycle(self, go, back, real, other):
        return Cycle(*super().cycle(go, back, real, other)[:2], None)

    def mark(self, cycles):
        super().mark([cycle[:2] for cycle in cycles])


class Raises(Right):
    def join(self):
        raise NotImplementedError


@pytest.fixture
def races(tiny, batch):
    """A function that gives the races in the generators' losses of a step with these speed-ups."""

    def find(*speedups, model=None, pictures=1, **settings):
        step = labkit.make_step(model or tiny(**settings), *speedups)
        given = dict(zip(("real_a", "real_b"), batch(pictures), strict=True))
        return find_races(lambda **batch: step.losses("generators", batch), step.model, **given)

    return find


def kinds(races):
    return {race.kind for race in races}


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("answer", ["streams", Right, Events, Synchronize, SynchronizeEach])
def test_what_is_ordered_is_no_race(races, answer, precision):
    assert races(answer, precision) == []


@pytest.mark.parametrize("name", ["batched", "recompute", "channels_last", "out_of_place", "fused_adam", "accumulate"])
def test_other_speedups_bring_no_race_to_streams(races, name):
    assert races("streams", name, "bf16", pictures=2) == []


FAKES = {"G_A(real_a)", "G_B(real_b)"}
COPIES = {"the bfloat16 copy of G_A.model.1.weight", "the bfloat16 copy of G_B.model.1.weight"}


PLANTED = [
    (NoFork, (), "before", BOTH_SIDES, {"real_a", "real_b"}),
    (OwnInputs, (), "before", BOTH_SIDES, {"G_A.model.1.weight", "G_B.model.1.weight"}),
    (NoJoin, (), "after", BACK_FROM_BOTH, FAKES),
    (EventRecordedTooEarly, (), "after", BACK_FROM_BOTH, FAKES),
    (Overwrites, (), "after", BACK_FROM_BOTH, {"real_a"}),
    # A synchronised host does not help: main reads the pictures later, and nothing tells the allocator.
    (SynchronizeOnly, (), "record_stream", BACK_FROM_BOTH, FAKES),
    (RecordedOnTheWrongStream, (), "record_stream", BACK_FROM_BOTH, FAKES),
    (NoCast, ("fp16",), "cast cache", {("side 1", "side 2")}, {"the float16 copy of G_B.model.1.weight"}),
    (CastAfterTheFork, ("bf16",), "before", BOTH_SIDES, COPIES),
]


@pytest.mark.parametrize(("answer", "others", "kind", "streams", "tensors"), PLANTED)
def test_a_planted_mistake_is_named_with_its_streams_and_tensors(races, answer, others, kind, streams, tensors):
    found = races(answer, *others)
    assert kinds(found) == {kind} and {race.streams for race in found} == streams
    assert {race.tensor for race in found} == tensors


def test_a_message_names_the_use_and_the_call_that_is_missing(races):
    before, after, written = (races(answer)[0].message for answer in (NoFork, NoJoin, Overwrites))
    assert "side 1 reads real_a (and " in before and "main, which writes it" in before
    assert "main reads G_A(real_a) (and 2 more)" in after and "call main.wait_stream(side_1)" in after
    assert "main writes real_a" in written and "side 1, which uses it" in written


def test_what_both_streams_write(races):
    (race,) = races(Right, norm="batch")
    assert (race.kind, race.tensor) == ("between", "G_B.model.2.num_batches_tracked")
    assert race.streams == ("side 1", "side 2")


@pytest.mark.parametrize("raised", [None, NotImplementedError])
def test_everything_is_put_back(tiny, races, raised):
    model = tiny()
    owners = (torch, torch.cuda, torch.Tensor)
    before = [dict(vars(owner)) for owner in owners]
    weights = copy.deepcopy(model.state_dict())
    with pytest.raises(raised) if raised else contextlib.nullcontext():
        races(Raises if raised else Right, "bf16", model=model)
    for owner, was in zip(owners, before, strict=True):
        assert all(vars(owner)[name] is value for name, value in was.items())
    assert vars(torch.Tensor).keys() == before[-1].keys() and torch.zeros(1).is_cuda is False
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None
    assert not any(network._forward_hooks for network in model.children())
    torch.testing.assert_close(model.state_dict(), weights, rtol=0, atol=0)


def test_a_stream_from_before_is_refused(races):
    class Foreign(Right):
        def fork(self):
            self.sides[0] = object()

    with pytest.raises(StreamError, match="made earlier.*first call"):
        races(Foreign)


RARER = [(NoIdentity, "identity"), (OneTooMany, "^3 side streams"), (SetsTheStream, "[Uu]se .*torch.cuda.stream")]


@pytest.mark.parametrize(("answer", "message"), RARER)
def test_rarer_mistakes_than_the_exercise_s_wrong_answers_have_a_message(answer, message):
    with pytest.raises(WrongAnswer, match=message):
        notebook_04.streams(answer)


# ---- programs of a few lines, each with its right answer


def forked():
    """Main, a side stream that has waited for it, and a tensor of main's."""
    main, side, made = torch.cuda.current_stream(), torch.cuda.Stream(), torch.ones(4, 6)
    side.wait_stream(main)
    return main, side, made


def read_on_main(read):
    main, side, made = forked()
    with torch.cuda.stream(side):
        doubled = 2 * made
    read(doubled)
    main.wait_stream(side)
    doubled.record_stream(main)


def read_on_the_side(read):
    main, side, made = forked()
    with torch.cuda.stream(side):
        doubled = 2 * made
        read(doubled)
    doubled.record_stream(main)
    return doubled + 1


def read_too_early():
    """The host has seen the first result, and not the second."""
    main, side, made = forked()
    with torch.cuda.stream(side):
        doubled = 2 * made
        doubled.sum().item()
        again = 3 * made
    again.record_stream(main)
    return again + 1


def parts(*ways):
    """Each side stream writes its part of what main made."""
    main, made = torch.cuda.current_stream(), torch.ones(4, 6)
    sides = [torch.cuda.Stream() for _ in ways]
    for side, way in zip(sides, ways, strict=True):
        side.wait_stream(main)
        with torch.cuda.stream(side):
            made[way].zero_()
    for side in sides:
        main.wait_stream(side)
    return made + 1


def first_item(tensor):
    return tensor[0, 0].item()


PROGRAMS = {
    "item on main before the join": (lambda: read_on_main(first_item), {"after"}),
    "equal on main before the join": (lambda: read_on_main(lambda tensor: torch.equal(tensor, tensor)), {"after"}),
    "a view on main before the join, which is no use": (lambda: read_on_main(torch.Tensor.detach), set()),
    "item on the side, then main": (lambda: read_on_the_side(first_item), set()),
    "item on the side of something earlier": (read_too_early, {"after"}),
    "upper and lower half": (lambda: parts(slice(2), slice(2, None)), set()),
    "halves that overlap": (lambda: parts(slice(3), slice(2, None)), {"between"}),
}


@pytest.mark.parametrize(("program", "expected"), PROGRAMS.values(), ids=PROGRAMS)
def test_small_programs(program, expected):
    assert kinds(find_races(lambda given: program(), torch.nn.Module(), given=torch.ones(1))) == expected
