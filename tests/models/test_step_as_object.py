"""A step copied, made again after its model was moved, and run in a thread: it continues as before, or says why not."""

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from killing import same_weights

import labkit


class Clipped(labkit.Step):
    def update(self, player):
        torch.nn.utils.clip_grad_norm_(self.players[player], 0.1)
        super().update(player)


pytestmark = pytest.mark.filterwarnings("ignore:.*changes nothing")
STACKS = [
    (),
    (Clipped, "fp16", "accumulate", "batched"),
    ("compile",),
    ("graph", "channels_last", "streams"),
    ("data_parallel", "out_of_place", "recompute"),
]


def trained(step, batch, seeds, **options):
    for seed in seeds:
        step(*batch(2, size=16, seed=seed, **options))
    return step


def test_a_step_is_named_after_its_stack(tiny):
    stacks = [(), ("fused_adam", "batched"), (Clipped, "batched")]
    names = [type(labkit.make_step(tiny(), *stack)).__name__ for stack in stacks]
    assert names == ["CycleGANStep", "batched+fused_adam", "Clipped+batched"]


@pytest.mark.parametrize("stack", STACKS, ids=lambda stack: "+".join(map(str, stack)) or "baseline")
def test_copies_go_on_as_the_original(tiny, batch, stack, monkeypatch):
    monkeypatch.setattr("labkit.variants.compile.Compile.backend", "eager")
    step = trained(labkit.make_step(tiny(pool_size=2), *stack), batch, [0, 1])
    other = copy.deepcopy(step)
    trained(step, batch, [2, 3])
    assert not same_weights(other.model, step.model)
    assert same_weights(trained(other, batch, [2, 3]).model, step.model)
    compiled = [network._compiled_call_impl is not None for network in other.model.children()]
    assert all(compiled) if stack == ("compile",) else not any(compiled)


def test_a_copy_before_the_first_step_and_a_plain_step(tiny, batch):
    for step in (labkit.make_step(tiny()), tiny().step_class(tiny())):
        other = copy.deepcopy(step)
        assert same_weights(trained(other, batch, [0]).model, trained(step, batch, [0]).model)


@pytest.mark.parametrize("stack", [(), ("fused_adam",), ("graph", "batched")])
def test_a_step_made_again_after_a_move_goes_on_from_its_state(tiny, batch, stack):
    step = trained(labkit.make_step(tiny(pool_size=2), *stack), batch, [0, 1])
    other = labkit.make_step(tiny(pool_size=2).double(), *stack)
    other.load_state_dict(step.state_dict())
    again = labkit.make_step(step.model.to(torch.float64), *stack)
    again.load_state_dict(step.state_dict())
    for one in (other, again):
        trained(one, batch, [2, 3], dtype=torch.float64)
    assert same_weights(again.model, other.model)
    kept = again.optimizers["generators"].state[next(again.model.parameters())].values()
    assert {one.dtype for one in kept} == {torch.float32, torch.float64}, "Adam's count of steps, and its moments"


MOVES = {
    "another device": lambda model: model.to("meta"),
    "another type": lambda model: model.double(),
    "another memory format": lambda model: model.to(memory_format=torch.channels_last),
    "other tensors": lambda model: model.load_state_dict(copy.deepcopy(model.state_dict()), assign=True),
}


@pytest.mark.parametrize("move", MOVES)
def test_a_model_that_was_moved_needs_its_step_made_again(tiny, batch, move):
    step = trained(labkit.make_step(tiny(), "fused_adam"), batch, [0])
    MOVES[move](step.model)
    with pytest.raises(labkit.LabkitError, match="moved, converted or replaced.*Make the step again"):
        step(*batch())


@pytest.mark.slow
def test_runs_in_threads_equal_runs_one_after_the_other(tiny, fruit, batch, tmp_path):
    def run(number, where):
        step = labkit.make_step(model[where, number], *(("fp16", "batched") if number else ("out_of_place",)))
        runs[where, number] = labkit.fit(step, fruit, 3, 2, seed=number, checkpoint=tmp_path / f"{where}{number}")

    model = {(where, number): tiny() for where in ("main", "thread") for number in range(2)}
    runs = {}
    for number in range(2):
        run(number, "main")
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(run, range(2), ["thread"] * 2))
    for number in range(2):
        assert same_weights(runs["main", number].model, runs["thread", number].model)
        assert runs["main", number].losses == runs["thread", number].losses
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
