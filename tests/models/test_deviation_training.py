"""DeviationGAN wherever CycleGAN goes: speed-ups, training, checkpoints, translation, comparison, recording."""

import copy

import pytest
import torch
from killing import same
from tiny import one_generator

import labkit
from labkit.measure.same import Update
from labkit.simulate import step_operators
from labkit.training import checkpoints
from labkit.variants.registry import SPEEDUPS as KNOWN

REFUSED = {"nhwc", "streams", "recompute"}
EXACT = sorted(name for name in set(KNOWN) - REFUSED if KNOWN[name].tolerance == "exact")
LEFT_OUT = [{"compile", "data_parallel", one} for one in ("winograd", "graph")]
LEFT_OUT.append({"out_of_place", "channels_last", "graph", "winograd"})
STACKS = [("bf16",), ("fp16",), *(tuple(name for name in EXACT if name not in names) for names in LEFT_OUT)]
pytestmark = [pytest.mark.filterwarnings("ignore:(graph|data_parallel)"), pytest.mark.usefixtures("quick_compiler")]


def one(**settings):
    """A tiny DeviationGAN, always with the same weights, that translates both ways and looks at all its losses."""
    return one_generator(**{"translators": 2, "consistency": "deviation_both", **settings})


@pytest.mark.slow
@pytest.mark.parametrize("names", STACKS, ids="+".join)
def test_a_speedup_computes_what_the_baseline_does(batch, names):
    exact = all(KNOWN[name].tolerance == "exact" for name in names)
    dtype, near = (torch.float64, 1e-9) if exact else (torch.float32, 2e-2)
    plain, fast = (labkit.make_step(one().to(dtype), *stack) for stack in ((), names))
    distance = Update.of(fast, batch(2, dtype=dtype)).distance(Update.of(plain, batch(2, dtype=dtype)))
    assert distance.losses <= near
    assert distance.gradients <= 1e-10 if exact else distance.cosine >= 0.9
    for seed in range(1, 5 if exact else 2):
        real = batch(2, seed=seed, dtype=dtype)
        right, losses = plain(*real), fast(*real)
        for name, loss in right.items():
            assert losses[name].item() == pytest.approx(loss.item(), rel=near, abs=1e-9), (name, seed)
    fast.load_state_dict(copy.deepcopy(plain.state_dict()))
    plain.load_state_dict(copy.deepcopy(fast.state_dict()))


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_changes_cycles_is_refused_with_its_reason(name):
    reasons = "two cycles run; DeviationGAN has none|ResNet generators with transposed"
    with pytest.raises(labkit.LabkitError, match=f"speed-up '{name}': .*({reasons})"):
        labkit.make_step(one(), name)


def test_under_bf16_the_pool_stays_in_float32(batch):
    step = labkit.make_step(one(), "bf16")
    step(*batch())
    assert step.model.pools["fake_B"].buffer.dtype == torch.float32


@pytest.mark.filterwarnings("ignore:.*nearly the same picture")
def test_a_run_that_stops_goes_on_as_if_it_had_not(fruit, tmp_path):
    kept = []
    for parts in ((4,), (2, 4)):
        folder = tmp_path / f"{len(parts)} parts"
        for steps in parts:
            model = one(translators=1)
            labkit.fit(labkit.make_step(model), fruit, steps, checkpoint=folder, sample_every=100)
        kept.append(checkpoints.load(folder)["step"])
        assert (folder / "samples" / "000004.png").exists()
    assert same(*kept)
    loaded = labkit.load_model(folder)
    assert type(loaded) is labkit.DeviationGAN and same(loaded.state_dict(), model.state_dict())
    assert labkit.quality(loaded, fruit).keys() == {"fg", "bg", "changed"}


def test_a_step_is_recorded_player_by_player():
    ranges = [operator.range for operator in step_operators(one(), "batched", size=32)]
    phases = ("forward", "backward", "optimizer")
    expected = [f"{player} {phase}" for player in ("autoencoder", "translator", "discriminator") for phase in phases]
    assert list(dict.fromkeys(filter(None, ranges))) == expected
