"""Which trace a notebook is shown: a shipped recording with its own stamp, and never one for another."""

from pathlib import Path

import pytest
import torch
from synthetic_trace import SyntheticTrace

import labcourse
import labkit
from labcourse import shipped
from labkit.measure.tables import read_results
from labkit.measure.timing import ratio


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder to work in, with a place for shipped traces that is empty."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shipped, "DATA", tmp_path / "data")
    return tmp_path


@pytest.mark.parametrize("device", ["h200", "t4"])
def test_a_shipped_recording_is_shown_with_its_own_stamp(elsewhere, device):
    trace = SyntheticTrace(labkit={"device": device}).launch(0, 10, 90)
    folder = elsewhere / "data" / "traces" / device
    folder.mkdir(parents=True)
    trace.save(folder / "resnet_9blocks_b16_bf16+streams.json.gz")
    assert labcourse.gpu_trace("streams", "bf16", batch_size=16).stamp == {"device": device}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to record on")
def test_nothing_is_recorded_afresh_without_a_gpu(elsewhere):
    with pytest.raises(labkit.LabkitError, match="device='cuda': .*labkit doctor"):
        labcourse.gpu_trace(afresh=True)


def test_a_recording_without_the_benchmark_mode_can_be_asked_for():
    recorded, other = (labcourse.gpu_trace(batch_size=16, benchmark=mode) for mode in (True, False))
    assert recorded.stamp["device"] == other.stamp["device"] == "NVIDIA H200"
    assert other.stamp["cudnn_benchmark"] is False and "SIMULATED" not in other.stamp


@pytest.mark.parametrize(("speedups", "how"), [(("bf16",), {"benchmark": False}), (("accumulate",), {})])
def test_a_step_that_nobody_has_recorded_is_an_error(speedups, how):
    with pytest.raises(labkit.LabkitError, match=f"b1_{speedups[0]}.json.gz is not shipped here"):
        labcourse.gpu_trace(*speedups, **how)


def test_a_missing_folder_of_recordings_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "PUBLIC", tmp_path)
    with pytest.raises(labkit.LabkitError, match="not shipped here: use a clone"):
        labcourse.public_trace("resnet50_workers0")


def test_the_pages_quote_the_survey():
    rows = read_results(shipped.DATA / "results" / "h200.json")["rows"].values()
    pairs = [row["comparison"]["rows"][:2] for row in rows if row["batch_size"] == 1 and "comparison" in row]
    plain = sorted(1e3 * own["median_s"] for pair in pairs for own in pair)[2:]  # without the race of two graphs
    steps = labcourse.gpu_steps().query("model == 'CycleGAN'").set_index(["batch_size", "speedups"])
    ms, _, times, low, high = steps.loc[(1, "graph+batched+fused_adam+out_of_place+bf16")].iloc[1:6]
    two = labcourse.gpu_streams().query("benchmark")
    idle = "{:.0f} to {:.0f} %".format(*(100 - 100 * 37.0 / end for end in plain[::23]))  # busy, launches: notebook 05
    launch = "took {:.1f} to {:.1f} us".format(*(1e3 * end / 4677 for end in plain[::23]))
    day = f"took {plain[0]:.0f} to {plain[-1]:.0f} ms that day"
    span = f"{plain[0] / ms:.1f} to {plain[-1] / ms:.1f}"
    race = "({:.2f} to {:.2f}".format(*two[["low", "high"]].iloc[0])
    gain = "{:.1f} % at batch 16".format(100 * two["times_faster"].iloc[1] - 100)
    pages = [Path(shipped.__file__).parents[1] / name for name in ("docs/speedups.md", "docs/trust.md")]
    speedups, trust = (" ".join(page.read_text(encoding="utf-8").split()) for page in pages)
    assert len(plain) == 24 and day in trust
    assert f"idle for {idle} of such a step" in trust and launch in trust
    alternately = (
        f"{ms:.0f} ms: {times:.1f} times faster when both were timed alternately, {span} if all plain steps of"
    )
    assert alternately in trust and f"{times:.1f} times as fast" in speedups
    assert f"({low:.1f} to {high:.1f} in its comparison; {span} over all plain steps" in speedups
    assert all(race in page and gain in page for page in (speedups, trust))


def test_the_page_on_training_quotes_the_study_of_checkerboards():
    looks = labcourse.study("checkerboards")
    last = looks.groupby(["name", "seed"]).tail(3).groupby(["name", "seed"]).median().groupby("name")
    low, high = last.min(), last.max()

    def ends(column, digits, *names):
        return [f"{low.loc[name, column]:.{digits}f} to {high.loc[name, column]:.{digits}f}" for name in names]

    plain, resized = ends("checkerboard", 1, "CycleGAN", "CycleGAN, resize")
    worse, better = ends("bg", 1, "CycleGAN, resize", "CycleGAN")
    step = ratio(*(looks.attrs["step_seconds"][name] for name in ("CycleGAN, resize", "CycleGAN")))
    page = " ".join((shipped.DATA.parent / "docs" / "training.md").read_text(encoding="utf-8").split())
    assert f"was {plain} times that of real pictures, and {resized} times with `_resize`" in page
    assert f"A step took {step:.2f} times as long" in page and f"{worse} % off, not {better} %" in page
