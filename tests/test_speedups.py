"""Every speed-up, alone and in every legal pair, is the baseline at its stated tolerance."""

import copy
import functools
import itertools
import types

import pytest
import torch

import labkit
from labkit.measure.measurements import Watched
from labkit.steps.making import known_speedups

KNOWN = known_speedups()
STACKS = [
    names
    for n in (1, 2)
    for names in itertools.combinations(KNOWN, n)
    if not any(other in KNOWN[name].excludes for name in names for other in names)
]
each_stack = pytest.mark.parametrize("names", STACKS, ids="+".join)
pytestmark = pytest.mark.filterwarnings("ignore:(streams|graph)")


@pytest.fixture(autouse=True)
def quick_compiler(monkeypatch):
    """Traces what torch.compile would compile, and runs that as it is: inductor takes minutes."""
    monkeypatch.setattr(KNOWN["compile"], "backend", "aot_eager")


def exact(names):
    return all(KNOWN[name].tolerance == "exact" for name in names)


def make(tiny, names, *own, like=None):
    """A step with these speed-ups, always from the same weights; small and in float64 if they (or `like`) are exact."""
    model = tiny(pool_size=3).double() if exact(like or names) else tiny(pool_size=3, ngf=8, ndf=8)
    return labkit.make_step(model, *own, *names)


def pictures(batch, names, n=2, seed=0):
    """A batch for `make`; as large as 16-bit rounding asks for."""
    size, dtype = (16, torch.float64) if exact(names) else (32, torch.float32)
    return batch(n, size=size, seed=seed, dtype=dtype)


@functools.cache
def baseline(tiny, batch, like, n):
    """Losses of the baseline's first steps on batches of `n`, and the gradients of the first."""
    step = make(tiny, (), Watched, like=like)
    losses = [step(*pictures(batch, like, n))]
    gradients = dict(step.gradients)
    losses += [step(*pictures(batch, like, n, seed)) for seed in range(1, 50 if exact(like) else 6)]
    return losses, gradients


def expected(tiny, batch, names, n=2):
    return baseline(tiny, batch, ("streams",) if exact(names) else ("bf16",), n)


def assert_close(losses, right, tolerance, where):
    for name, loss in right.items():
        assert losses[name].item() == pytest.approx(loss.item(), rel=tolerance), (name, where)


@each_stack
def test_losses_and_gradients_of_the_first_step_are_the_baseline_s(tiny, batch, names):
    losses, gradients = expected(tiny, batch, names)
    step = make(tiny, names, Watched)
    assert_close(step(*pictures(batch, names)), losses[0], 1e-10 if exact(names) else 1e-2, names)
    for name, gradient in gradients.items():
        if exact(names):
            assert (step.gradients[name] - gradient).norm() <= 1e-10 * gradient.norm(), name
        else:
            assert torch.cosine_similarity(step.gradients[name], gradient, dim=0) >= 0.9, name


@pytest.mark.parametrize("names", [names for names in STACKS if exact(names)], ids="+".join)
def test_in_float64_an_exact_speedup_stays_the_baseline(tiny, batch, names):
    n = 2 if "accumulate" in names else 1  # one picture is what a memory format can go wrong with
    step = make(tiny, names)
    losses, _ = expected(tiny, batch, names, n)
    for seed, right in enumerate(losses[: 50 if len(names) == 1 else 8]):
        assert_close(step(*pictures(batch, names, n, seed)), right, 1e-9, seed)


@each_stack
def test_a_run_goes_on_under_other_speedups_and_back(tiny, batch, names):
    losses, _ = expected(tiny, batch, names)
    plain, other = make(tiny, (), like=names), make(tiny, names)
    for seed, step in enumerate([plain, plain, other, other, plain, plain]):
        if seed in (2, 4):
            step.load_state_dict(copy.deepcopy((other if step is plain else plain).state_dict()))
        assert_close(step(*pictures(batch, names, seed=seed)), losses[seed], 1e-9 if exact(names) else 5e-2, seed)
    options = {group["fused"] for group in other.optimizers["generators"].param_groups}
    assert options == {other.adam_options().get("fused")}


def test_fp16_skips_the_update_of_the_player_that_overflowed_and_of_no_other(tiny, batch):
    class Overflows:
        def backward(self, loss, player):
            super().backward(loss, player)
            if player == "discriminators":
                self.players[player][0].grad.fill_(float("inf"))

    step = labkit.make_step(tiny(), Overflows, "fp16")
    before = {player: [weight.detach().clone() for weight in weights] for player, weights in step.players.items()}
    scale = step.scaler.get_scale()
    step(*batch())
    moved = {
        player: any(not torch.equal(now, then) for now, then in zip(step.players[player], before[player], strict=True))
        for player in before
    }
    assert moved == {"generators": True, "discriminators": False}
    assert step.scaler.get_scale() == scale / 2, "the scale is adapted once a step"


def test_fp16_s_scale_goes_on_from_a_checkpoint(tiny, batch):
    step = labkit.make_step(tiny(), "fp16")
    step(*batch())
    step.scaler.update(new_scale=1024.0)
    fresh = labkit.make_step(tiny(), "fp16")
    fresh.load_state_dict(step.state_dict())
    assert fresh.scaler.get_scale() == 1024.0


def test_streams_say_once_that_there_are_none_here(tiny, batch):
    step = labkit.make_step(tiny(), "streams")
    with pytest.warns(UserWarning, match="no CUDA streams here") as said:
        step(*batch())
        step(*batch())
    assert len(said) == 1


def test_an_impossible_pair_is_refused_with_its_reason(tiny):
    with pytest.raises(labkit.LabkitError, match="'bf16' and 'fp16' exclude each other"):
        labkit.make_step(tiny(), "bf16", "fp16")


def test_emulated_bf16_is_refused(monkeypatch):
    on_gpu = types.SimpleNamespace(parameters=lambda: iter([types.SimpleNamespace(is_cuda=True)]))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    with pytest.raises(labkit.LabkitError, match="speed-up 'bf16': Tesla T4 only emulates.*use 'fp16'"):
        labkit.make_step(on_gpu, "bf16")


def test_streams_and_batch_norm_are_refused(tiny):
    with pytest.raises(labkit.LabkitError, match="speed-up 'streams': batch norm"):
        labkit.make_step(tiny(norm="batch"), "streams")


def test_the_table_says_everything_about_every_speedup():
    table = labkit.speedups()
    assert list(table.index) == list(KNOWN)
    assert (table.map(len) > 0).all(axis=None)


def test_deleting_a_file_makes_only_its_name_disappear(tiny, batch, monkeypatch):
    from labkit.steps import making

    modules = [module for module in making.pkgutil.iter_modules(labkit.steps.__path__) if module.name != "bf16"]
    monkeypatch.setattr(making.pkgutil, "iter_modules", lambda path: modules)
    assert set(labkit.speedups().index) == set(KNOWN) - {"bf16"}
    labkit.make_step(tiny(), "streams", "fp16")
