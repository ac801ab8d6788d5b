"""The step as a CUDA graph. Without a GPU a stand-in does what a graph does: the same operators on the same memory."""

import copy
import functools
from contextlib import nullcontext
from unittest.mock import MagicMock, call, create_autospec

import pytest
import torch
from killing import same
from tiny import assert_close
from torch.utils._pytree import tree_leaves

import labkit
from labcourse.stand_ins import Tape
from labkit.measure.record import preserving_state
from labkit.variants import graph
from labkit.variants.graph import Graph


class OnCPU(Graph):
    """Records on a CPU; as on a GPU, recording does not yet change anything."""

    @staticmethod
    def why_inactive(model):
        return None

    def on_own_stream(self, body):
        body()

    @torch.no_grad()
    def capture(self, body):
        held = [pool.buffer for pool in self.model.pools.values() if pool.size]
        held += [tensor for adam in self.optimizers.values() for tensor in tree_leaves(list(adam.state.values()))]
        held += [self.scaler._scale, self.scaler._growth_tracker] if hasattr(self, "scaler") else []
        held += self.model.parameters()
        before = [tensor.clone() for tensor in held]
        with torch.enable_grad(), Tape() as tape:
            body()
        for tensor, value in zip(held, before, strict=True):
            tensor.copy_(value)
        return tape.replay


def float64(batch, n, seed):
    return batch(n, size=16, seed=seed, dtype=torch.float64)


RUNS = [
    ((), 16, 1, 3),
    ((), 10, 2, 0),
    (("accumulate", "out_of_place"), 12, 3, 3),
    (("channels_last", "recompute", "batched"), 12, 1, 3),
]


@pytest.mark.parametrize(("names", "steps", "n", "pool_size"), RUNS)
def test_a_schedule_and_a_resumption_in_between_are_the_baseline_s(tiny, batch, names, steps, n, pool_size):
    lr = 2**-12  # so that it, and what the schedule makes of it, is the same number in float32
    plain = labkit.make_step(tiny(pool_size=pool_size).double(), lr=lr)
    step = labkit.make_step(tiny(pool_size=pool_size).double(), OnCPU, *names, lr=lr)
    for done in range(steps):
        if done == steps // 2:
            state = copy.deepcopy(step.state_dict())
            assert {group["lr"] for adam in state["optimizers"].values() for group in adam["param_groups"]} == {lr / 2}
            step = labkit.make_step(tiny(pool_size=pool_size).double(), OnCPU, *names, lr=lr)
            step.load_state_dict(state)
        for each in (plain, step):
            each.scale_lr(0.5 ** (3 * done // steps))
        real = float64(batch, n, done)
        assert_close(step(*real), plain(*real), 1e-9, done)


@pytest.mark.parametrize("name", [pytest.param("fp16", marks=pytest.mark.slow), "bf16"])
def test_sixteen_bit_steps_are_recorded_with_their_casts_and_their_scale(tiny, batch, name):
    plain, step = (labkit.make_step(tiny(pool_size=3), *own, name) for own in ((), (OnCPU,)))
    for seed in range(8):
        assert_close(step(*batch(seed=seed)), plain(*batch(seed=seed)), 2e-2, seed)
    if name == "fp16":
        assert step.scaler.state_dict() == plain.scaler.state_dict()


def test_losses_are_not_overwritten_by_the_next_step(tiny, batch):
    step = labkit.make_step(tiny(), OnCPU)
    kept = [step(*batch(seed=seed)) for seed in range(5)]
    values = [{name: loss.item() for name, loss in losses.items()} for losses in kept]
    step(*batch(seed=9))
    assert [{name: loss.item() for name, loss in losses.items()} for losses in kept] == values
    assert len({losses["cycle_A"] for losses in values}) == 5


def test_what_is_put_back_is_what_goes_on(tiny, batch):
    plain, step = labkit.make_step(tiny(pool_size=2).double()), labkit.make_step(tiny(pool_size=2).double(), OnCPU)
    for seed in range(12):
        if seed % 4 == 3:
            with preserving_state(step):
                for other in range(4):
                    step(*float64(batch, 1, 100 + other))
        real = float64(batch, 1, seed)
        assert_close(step(*real), plain(*real), 1e-7, seed)


def test_a_batch_of_another_shape_is_refused_and_changes_nothing(tiny, batch):
    plain, step = labkit.make_step(tiny(pool_size=2).double()), labkit.make_step(tiny(pool_size=2).double(), OnCPU)
    for seed in range(8):
        real = float64(batch, 2, seed)
        assert_close(step(*real), plain(*real), 1e-7, seed)
        shapes = r"recorded for batches of shape \(2, 3, 16, 16\).*\(1, 3, 16, 16\)"
        with pytest.raises(labkit.LabkitError, match=shapes):
            step(*float64(batch, 1, seed))
        with pytest.raises(labkit.LabkitError, match="float32 on cpu, the networks are torch.float64"):
            step(*batch(2, size=16))


def warmed_up(tiny, batch, *seams):
    """A step that is about to be recorded."""
    step = labkit.make_step(tiny(), *seams)
    for _ in range(step.warmup):
        step(*batch())
    return step


def test_a_seam_that_waits_for_the_device_is_named(tiny, batch):
    class Looks:
        def backward(self, loss, player):
            super().backward(loss, player)
            assert loss.item() > 0

    step = warmed_up(tiny, batch, OnCPU, Looks)
    before = copy.deepcopy(step.state_dict()["model"])
    with pytest.raises(labkit.LabkitError, match="cannot be recorded.*not permitted.*no .item()"):
        step(*batch())
    assert same(step.state_dict()["model"], before)
    assert all(weight.grad is None for weight in step.model.parameters())


@pytest.mark.parametrize("ends_badly", [False, True])
def test_memory_that_does_not_suffice_is_not_taken_for_waiting(tiny, batch, ends_badly):
    class Full(OnCPU):
        def capture(self, body):
            try:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            finally:
                if ends_badly:  # as CUDA does, after an error in a recording
                    raise RuntimeError("operation failed due to a previous error during capture")

    step = warmed_up(tiny, batch, Full)
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        step(*batch())


def test_the_rate_on_the_device_is_float32_whatever_the_default_type_is(tiny, request):
    """Fused Adam on a GPU refuses any other; `labkit.compare` makes steps under a default of float64."""
    request.addfinalizer(functools.partial(torch.set_default_dtype, torch.get_default_dtype()))
    torch.set_default_dtype(torch.float64)
    step = labkit.make_step(tiny().double(), OnCPU)
    step.load_state_dict(step.state_dict())
    step.scale_lr(0.5)
    assert {group["lr"].dtype for adam in step.optimizers.values() for group in adam.param_groups} == {torch.float32}


def test_kernels_in_a_graph_are_marked_with_the_ranges_of_the_step(tiny, batch, monkeypatch):
    marked = MagicMock()  # of PyTorch 2.14, where the backward pass would have its forward pass's name
    marked.mark_kernels = create_autospec(lambda part, *, backward=True: None, return_value=nullcontext())
    step = labkit.make_step(tiny(), OnCPU)
    for annotations in (marked, None):  # None: before PyTorch 2.12
        monkeypatch.setattr(graph, "ANNOTATIONS", annotations)
        step(*batch())
    parts = [f"{who} {what}" for who in step.players for what in ("forward", "backward", "optimizer")]
    assert marked.mark_kernels.call_args_list == [call(part, backward=False) for part in parts]
