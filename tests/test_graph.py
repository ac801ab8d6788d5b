"""The step as a CUDA graph. Without a GPU a stand-in does what a graph does: the same operators on the same memory."""

import copy

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import labkit
from labkit.measure.recording import as_found
from labkit.steps.graph import Graph


class Recording(TorchDispatchMode):
    """Keeps every operator with its arguments and results. `replay` runs them again, into the same results."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if operator is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("operation not permitted when stream is capturing")
        result = operator(*args, **(kwargs or {}))
        if "empty" not in operator.name():
            self.calls.append((operator, args, kwargs or {}, result))
        elif result.dtype == torch.int64:
            result.zero_()  # memory that a graph would not read before it is replayed
        return result

    @torch.no_grad()
    def replay(self):
        for operator, args, kwargs, result in self.calls:
            for old, new in zip(tree_leaves(result), tree_leaves(operator(*args, **kwargs)), strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class OnCPU(Graph):
    """Records on a CPU; as on a GPU, recording does not yet change anything."""

    def acts(self):
        return True

    def apart(self, body):
        body()

    @torch.no_grad()
    def capture(self, body):
        held = [pool.buffer for pool in self.model.pools.values() if pool.size]
        held += [tensor for adam in self.optimizers.values() for tensor in tree_leaves(list(adam.state.values()))]
        held += [self.scaler._scale, self.scaler._growth_tracker] if hasattr(self, "scaler") else []
        held += self.model.parameters()
        before = [tensor.clone() for tensor in held]
        with torch.enable_grad(), Recording() as recording:
            body()
        for tensor, value in zip(held, before, strict=True):
            tensor.copy_(value)
        return recording.replay


def float64(batch, n, seed):
    return batch(n, size=16, seed=seed, dtype=torch.float64)


def assert_same(losses, expected, tolerance, where):
    for name, loss in expected.items():
        assert losses[name].item() == pytest.approx(loss.item(), rel=tolerance), (name, where)


@pytest.mark.parametrize(
    ("names", "n", "pool_size"),
    [
        ((), 1, 3),
        ((), 2, 0),
        (("accumulate", "out_of_place"), 3, 3),
        (("channels_last", "recompute", "batched"), 1, 3),
    ],
)
def test_fifty_steps_with_a_schedule_and_a_resumption_are_the_baseline_s(tiny, batch, names, n, pool_size):
    lr = 2**-12  # so that it, and what the schedule makes of it, is the same number in float32
    plain = labkit.make_step(tiny(pool_size=pool_size).double(), lr=lr)
    step = labkit.make_step(tiny(pool_size=pool_size).double(), OnCPU, *names, lr=lr)
    for done in range(50):
        if done == 25:
            state = copy.deepcopy(step.state_dict())
            assert {group["lr"] for adam in state["optimizers"].values() for group in adam["param_groups"]} == {lr / 2}
            step = labkit.make_step(tiny(pool_size=pool_size).double(), OnCPU, *names, lr=lr)
            step.load_state_dict(state)
        for each in (plain, step):
            each.scale_lr(0.5 ** (done // 20))
        real = float64(batch, n, done)
        assert_same(step(*real), plain(*real), 1e-9, done)


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_sixteen_bit_steps_are_recorded_with_their_casts_and_their_scale(tiny, batch, name):
    plain, step = (labkit.make_step(tiny(pool_size=3), *own, name) for own in ((), (OnCPU,)))
    for seed in range(8):
        assert_same(step(*batch(seed=seed)), plain(*batch(seed=seed)), 2e-2, seed)
    if name == "fp16":
        assert step.scaler.state_dict() == plain.scaler.state_dict()


def test_each_call_is_one_update(tiny, batch):
    step = labkit.make_step(tiny(), OnCPU)
    for calls in range(1, 6):
        step(*batch(seed=calls))
        counts = {state["step"].item() for adam in step.optimizers.values() for state in adam.state.values()}
        assert counts == {calls}


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
            with as_found(step):
                for other in range(4):
                    step(*float64(batch, 1, 100 + other))
        real = float64(batch, 1, seed)
        assert_same(step(*real), plain(*real), 1e-7, seed)


def test_a_batch_of_another_shape_is_refused_and_changes_nothing(tiny, batch):
    plain, step = labkit.make_step(tiny(pool_size=2).double()), labkit.make_step(tiny(pool_size=2).double(), OnCPU)
    for seed in range(8):
        real = float64(batch, 2, seed)
        assert_same(step(*real), plain(*real), 1e-7, seed)
        with pytest.raises(
            labkit.LabkitError, match=r"recorded for batches of shape \(2, 3, 16, 16\).*\(1, 3, 16, 16\)"
        ):
            step(*float64(batch, 1, seed))
        with pytest.raises(labkit.LabkitError, match="float32, the networks are torch.float64"):
            step(*batch(2, size=16))


def test_a_seam_that_waits_for_the_device_is_named(tiny, batch):
    class Prints:
        def losses(self, player, batch):
            losses = super().losses(player, batch)
            return {name: loss for name, loss in losses.items() if loss.item() > 0}

    step = labkit.make_step(tiny(), OnCPU, Prints)
    for _ in range(step.warmup):
        step(*batch())
    with pytest.raises(labkit.LabkitError, match="cannot be recorded.*not permitted.*no .item()"):
        step(*batch())


def test_without_a_gpu_it_says_so_once(tiny, batch):
    step = labkit.make_step(tiny(), "graph")
    with pytest.warns(UserWarning, match="graph: no CUDA graphs here") as said:
        step(*batch())
        step(*batch())
    assert len(said) == 1
