"""Recordings by others: stamped so, complete, and with the numbers that were counted in the originals."""

import json
import warnings
from pathlib import Path

import pytest

import labtrace

DATA = Path(__file__).parents[2] / "data"
PUBLIC = DATA / "traces" / "public"
PAGE = " ".join((DATA.parent / "docs" / "trust.md").read_text(encoding="utf-8").split())
LICENCES = tuple(f"LICENSE.{published}.txt" for published in ("hta", "kineto", "leimao", "param"))
# Counted in the published files without labkit: kernels, copies and memsets; steps; microseconds from the first work on
# the GPU to the last.
COUNTED = {
    "resnet50_workers0": (8772 + 12 + 312, 6, 996_477),
    "resnet50_workers4": (8868 + 12 + 378, 6, 801_550),
    "v100_nanoseconds": (4350 + 1600 + 145, 5, 480_029.227),
    "a100_streams": (8568 + 228 + 654, 6, 464_594),
    "rtx5080_launch_by_launch": (238 + 0 + 14, 7, 17_681.798),
    "rtx5080_cuda_graph": (321 + 16 + 18, 7, 8_783.714),
}
NAMES = sorted(COUNTED)
RANKS = "dlrm_8_ranks"


@pytest.fixture(scope="module")
def traces(public_trace):
    return {name: public_trace(name) for name in NAMES}


def test_all_that_is_shipped_is_listed_and_small():
    shipped_here = {file.name for file in PUBLIC.iterdir()}
    assert shipped_here == {f"{name}.json.gz" for name in NAMES} | {RANKS, *LICENCES}
    assert all(file.stat().st_size < 8e6 for file in PUBLIC.iterdir())
    assert sum(file.stat().st_size for file in DATA.rglob("*") if file.is_file()) < 40e6


@pytest.mark.parametrize("name", NAMES)
def test_the_stamp_names_device_source_and_licence_and_never_labkit(traces, name):
    stamp = traces[name].stamp
    assert stamp["recorded_by"].startswith("others") and "SIMULATED" not in stamp and "labkit" not in stamp
    device = next(iter(traces[name].ranks.values())).recording.meta["deviceProperties"][0]["name"]
    assert stamp["device"] == device and stamp["date"].startswith("20") and stamp["thinned"] and stamp["what"]
    assert stamp["licence"].split()[-1] in LICENCES and stamp["source"].startswith("github.com/")
    said = labtrace.show.stamp_text(traces[name])
    assert device in said and "recorded by others" in said and stamp["source"].split(",")[0] in said
    assert said in labtrace.show.trace(traces[name]).layout.title.text.replace("</sub><br><sub>", " ")
    table = traces[name].temporal()
    assert table.attrs["stamp"] == stamp and table.columns.name is None


@pytest.mark.parametrize("name", NAMES)
def test_nothing_that_labkit_reads_was_left_out(traces, name):
    kernels, steps, wall_us = COUNTED[name]
    temporal = traces[name].temporal().set_index("part")["us"]
    assert temporal["wall"] == pytest.approx(wall_us, abs=0.002)
    assert traces[name].kernels()["count"].sum() == kernels
    assert traces[name].temporal(by="step")["step"].nunique() == traces[name].stamp["steps"] == steps


@pytest.mark.parametrize("name", NAMES)
def test_an_unchanged_replay_is_close_to_the_recording(traces, name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a ReplayWarning would say that it is off by more than 5 %
        timeline = traces[name].what_if().timeline
    wall = timeline.kernel_end.max() - timeline.kernel_start.min()
    assert wall == pytest.approx(COUNTED[name][2], rel=0.05)


def test_workers_bring_the_gain_that_the_recording_without_them_predicted(traces):
    without, four = (traces[f"resnet50_workers{number}"] for number in (0, 4))
    remedies = without.remedies().set_index("cause")
    assert remedies.loc["data loading", "times_faster_at_most"] == pytest.approx(1.40, abs=0.005)
    walls = [trace.temporal().set_index("part")["us"]["wall"] for trace in (without, four)]
    assert walls[0] - remedies.loc["data loading", "us"] == pytest.approx(walls[1], rel=0.15)
    whole = [trace.temporal(by="step").query("part == 'wall'")["us"].median() for trace in (without, four)]
    assert [whole[0] / whole[1], walls[0] / walls[1]] == pytest.approx([1.37, 1.24], abs=0.005)
    steps = [trace.ranks[0].steps["duration"].median() / 1e3 for trace in (without, four)]  # on the host
    assert steps == pytest.approx([176, 126], abs=1)
    assert "at most 1.40, recorded 1.37 by the median step. (The mean of six says 1.24" in PAGE
    readme = (DATA.parent / "README.md").read_text(encoding="utf-8")
    assert without.summary()["verdict"].item() in " ".join(readme.split()), "the README quotes it"


def test_a_graph_brings_what_the_recording_without_it_predicted(traces):
    without, graph = (traces[f"rtx5080_{name}"] for name in ("launch_by_launch", "cuda_graph"))
    predicted = without.what_if().timeline.wall / without.what_if(graph=True).timeline.wall
    steps = [trace.temporal(by="step").query("part == 'wall'")["us"][:-1].median() for trace in (without, graph)]
    assert steps == pytest.approx([2429, 902], abs=1)
    assert [predicted, steps[0] / steps[1]] == pytest.approx([2.73, 2.69], abs=0.005)
    assert "predicted 2.73 times faster, recorded 2.69" in PAGE


def test_the_eight_ranks_of_a_step_and_their_straggler(public_trace):
    ranks = public_trace(RANKS)
    table = ranks.communication().set_index("rank")
    assert list(table.index) == [*range(8)] and (table["straggler"] == 7).all() and (table["ranks"] == "8 of 8").all()
    assert table["waited_us"].tolist() == [5581, 11119, 3275, 9557, 6370, 6034, 3341, 1529]  # counted without labtrace
    assert ranks.stamp["recorded_by"].startswith("others") and ranks.stamp["licence"].split()[-1] in LICENCES


@pytest.mark.filterwarnings("ignore::labtrace.replay.recorded_replay.ReplayWarning")
def test_no_report_promises_more_than_one_speed_up_was_measured_to_bring():
    """Each recording whose limit is the GPU, beside the measured steps that have one speed-up more."""
    rows = json.loads((DATA / "results" / "h200.json").read_text(encoding="utf-8"))["rows"]
    medians = {
        (row["batch_size"], frozenset(row["speedups"])): row["comparison"]["rows"][-1]["median_s"]
        for row in rows.values()
        if row["kind"] == "timing"
    }
    pairs = 0
    for file in (DATA / "traces" / "h200").glob("resnet*"):
        batch_size, _, names = file.name.removesuffix(".json.gz").partition("_b")[2].partition("_")
        before = int(batch_size), frozenset(names.removeprefix("baseline").split("+")) - {""}
        trace = labtrace.Trace(file)
        if trace.summary()["bound_by"].item() != "compute":
            continue
        remedies = trace.remedies()
        remedies = remedies.assign(at=remedies["times_faster_at_half"].fillna(remedies["times_faster_at_most"]))
        for (batch, speedups), seconds in medians.items():
            if batch == before[0] and before[1] < speedups and len(speedups - before[1]) == 1:
                (name,) = speedups - before[1]
                promised = remedies["at"][remedies["try"].str.contains(f'"{name}"')].max()
                assert not promised > 1.02 * medians[before] / seconds, (file.name, name, promised)
                pairs += 1
    assert pairs >= 2
