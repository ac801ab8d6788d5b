"""A step pickled, copied, moved with its model, and run in a thread: it goes on as before, or says why not."""

import copy
import pickle
import threading

import pytest
import torch

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
    ("data_parallel", "out_of_place", "recompute", "rows"),
    ("two_devices",),
]


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


def trained(step, batch, seeds, **options):
    for seed in seeds:
        step(*batch(2, seed=seed, **options))
    return step


@pytest.mark.parametrize("stack", STACKS, ids=lambda stack: "+".join(map(str, stack)) or "baseline")
def test_copies_go_on_as_the_original(tiny, batch, stack, monkeypatch):
    monkeypatch.setattr("labkit.variants.compile.Compile.backend", "eager")
    step = trained(labkit.make_step(tiny(pool_size=2), *stack), batch, [0, 1])
    copies = [copy.deepcopy(step), pickle.loads(pickle.dumps(step))]
    trained(step, batch, [2, 3])
    for other in copies:
        assert not equal(other.model, step.model)
        assert equal(trained(other, batch, [2, 3]).model, step.model)
        assert [kind.__name__ for kind in type(other).__mro__] == [kind.__name__ for kind in type(step).__mro__]
        compiled = [network._compiled_call_impl is not None for network in other.model.children()]
        assert all(compiled) if stack == ("compile",) else not any(compiled)


def test_a_copy_before_the_first_step_and_a_plain_step(tiny, batch):
    for step in (labkit.make_step(tiny()), tiny().step_class(tiny())):
        other = copy.deepcopy(step)
        assert equal(trained(other, batch, [0]).model, trained(step, batch, [0]).model)


@pytest.mark.parametrize("stack", [(), ("fused_adam",), ("graph", "batched")])
def test_a_step_follows_its_model_to_another_type(tiny, batch, stack):
    step = trained(labkit.make_step(tiny(pool_size=2), *stack), batch, [0, 1])
    other = labkit.make_step(tiny(pool_size=2).double(), *stack)  # moved first, then loaded
    other.load_state_dict(step.state_dict())
    step.model.to(torch.float64)
    assert all(
        equal(trained(one, batch, [2, 3], dtype=torch.float64).model, other.model) or one is step
        for one in (step, other)
    )
    assert {kept.dtype for kept in step.optimizers["generators"].state[next(step.model.parameters())].values()} == {
        torch.float32,  # Adam's count of steps
        torch.float64,
    }


def test_fused_adam_follows_weights_into_another_memory_format(tiny, batch):
    steps = [trained(labkit.make_step(tiny(), "fused_adam"), batch, [0]) for _ in range(2)]
    steps[0].model.to(memory_format=torch.channels_last)
    losses = [trained(step, batch, [1, 2])(*batch(2, seed=3)) for step in steps]
    assert all(torch.allclose(losses[0][name], losses[1][name], rtol=1e-3) for name in losses[0])


def test_a_model_moved_away_is_named(tiny, batch):
    step = labkit.make_step(tiny(), "batched", "fused_adam")
    step.model.to("meta")
    with pytest.raises(labkit.LabkitError, match="step again"):
        step(*batch())
    step = labkit.make_step(tiny(), "batched", "fused_adam")
    step.place = torch.device("cuda"), *step.place[1:]  # as if it had been made there
    with pytest.raises(labkit.LabkitError, match="moved from cuda to cpu .*batched, fused_adam"):
        step(*batch())


def test_replaced_weights_are_named(tiny, batch):
    step = labkit.make_step(tiny())
    step.model.load_state_dict(tiny().state_dict(), assign=True)
    with pytest.raises(labkit.LabkitError, match="weights were replaced"):
        step(*batch())


def test_runs_in_threads_equal_runs_one_after_the_other(tiny, fruit, batch, tmp_path):
    def run(number, where):
        step = labkit.make_step(model[where, number], *(("fp16", "batched") if number else ("out_of_place",)))
        runs[where, number] = labkit.fit(step, fruit, 3, 2, seed=number, checkpoint=tmp_path / f"{where}{number}")

    model = {(where, number): tiny() for where in ("main", "thread") for number in range(2)}
    runs = {}
    for number in range(2):
        run(number, "main")
    threads = [threading.Thread(target=run, args=(number, "thread")) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(2):
        assert equal(runs["main", number].model, runs["thread", number].model)
        assert runs["main", number].losses == runs["thread", number].losses
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
