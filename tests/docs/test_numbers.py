"""Where the pages on speed-ups and trust have measured numbers, they name files that hold them; tables are equal."""

import io
import re
from pathlib import Path

import pandas
import pytest

import labcourse
import labkit
import labtrace
from labkit.measure.tables import from_json, read_results
from labtrace.replay.recorded_replay import ReplayWarning

ROOT = Path(__file__).parents[2]
PAGES = {name: (ROOT / "docs" / f"{name}.md").read_text("utf-8") for name in ("speedups", "trust")}
MEASURED = r"(?<!orch )(?<![\w.])\d+\.\d+\b|\d (?:ms|us|%|TB/s|TFLOP/s)\b"
SETTINGS = "What `compare` looks at"  # has numbers of the code alone
HOLDS = r"data/(?:results|measured)[\w/.]*|h[12]00_predicted\.csv|benchmarks/[\w/.]+|planted\.py|trust\.md#[\w-]+"


@pytest.mark.parametrize("page", PAGES)
def test_a_section_with_measured_numbers_names_the_file_that_holds_them(page):
    prose = re.sub(r"```.*?```", "", PAGES[page], flags=re.S)
    for section in re.split(r"^##+ ", prose, flags=re.M):
        if re.search(MEASURED, " ".join(section.split())) and not re.match(SETTINGS, section):
            named = [name.rstrip(".") for name in re.findall(HOLDS, section)]
            assert named, section.partition("\n")[0]
            assert all((ROOT / name).exists() for name in named if "/" in name), named


def test_the_table_of_processors_is_the_file_s():
    table = pandas.read_csv(ROOT / "data" / "results" / "processor.csv")
    again = table.query("step == 'baseline again'")["times_faster"]
    assert f"{again.min():.2f} to {again.max():.2f} times as fast" in PAGES["speedups"]
    steps = ["reference", "compile", "out_of_place,batched,fused_adam", "winograd,subpixel,batched,fused_adam"]
    for case, rows in table.groupby(["generator", "pixels", "filters", "held_to"]):
        times = rows.set_index("step")["times_faster"].reindex(steps)
        cells = " | ".join("" if time != time else f"{time:.2f}" for time in times).replace("|  |", "| |")
        assert f"| {', '.join(map(str, case[:3]))} | {case[3]} | {cells} |" in PAGES["speedups"]


@pytest.mark.parametrize("gpu", ["H200", "H100", "A100"])
def test_what_is_predicted_of_nhwc_is_the_file_s(gpu):
    table = pandas.read_csv(ROOT / "data" / "results" / f"{gpu.lower()}_predicted.csv")
    ms = dict(zip(table["key"].str.removeprefix("timing/resnet_9blocks/256/b"), table.iloc[:, 2], strict=True))
    one, many = (ms[f"{batch}/tf32=default/graph+nhwc+batched+fused_adam+bf16"] for batch in (1, 16))
    text = " ".join(PAGES["trust"].split())
    assert f"| {gpu} | {one:.1f} | {many:.1f} |" in text
    if gpu == "H200":  # beside what was measured
        assert f"| {many:.0f} ms: {336 / many:.1f} times plain, {197.6 / many:.1f} times the old one |" in text
        assert f"| {one:.1f} ms: {22.8 / one:.1f} times the old one, {98 / one:.0f} times a plain step" in text
        two = [ms[f"{batch}/tf32=default/graph+nhwc+streams+batched+fused_adam+bf16"] for batch in (1, 16)]
        assert "the model says {:.1f} and {:.1f} on".format(*two) in text
        assert f"| {ms['1/tf32=default/nhwc+batched+fused_adam+bf16']:.1f} ms on a host of 19 us" in text


def test_errors_on_the_h200_are_the_files():
    graphs, text = labcourse.gpu_steps().query("speedups.str.contains('graph')"), " ".join(PAGES["trust"].split())
    short = (1 - graphs["SIMULATED_ms"] / graphs["ms"]).groupby(graphs["batch_size"]).agg(["min", "max"])
    assert "by {:.0f} to {:.0f} % in graphs of batch 1".format(*100 * short.loc[1]) in text
    missing = short.loc[16, "min"]
    [gain] = graphs.query("batch_size == 16 and speedups.str.endswith('bf16')")["times_faster"]
    assert f"and {gain:.1f} times at batch 16" in PAGES["speedups"]
    assert (
        f"({missing:.0%} as a graph".replace("%", " %") in text and f"89 ms would be {89 / (1 - missing):.0f}." in text
    )
    errors = pandas.read_csv(ROOT / "data" / "results" / "model_errors.csv").set_index(["step", "part"])
    (many, all_model, _), (less, model, _) = errors.loc["CycleGAN, H200, batch 16"].loc[["busy", "convolutions"]].values
    assert f"{less:.0f} of the kernels' {many:.0f} ms where it says {model:.0f}" in text
    assert 0.65 <= (less - model) / (many - all_model) < 0.75 and "Seven tenths of what is missing are convol" in text
    number = r"([\d.]+)"
    rows = re.findall(rf"[|] 1 [|][^\n]* \({number} to {number}\) [|] [\d.]+ [|] {number} [|]", PAGES["trust"])
    inside = [float(low) <= float(model) <= float(high) for low, high, model in rows]
    assert (len(inside), sum(inside)) == (11, 8) and "the eleven that were predicted at batch 1, eight are in" in text


@pytest.mark.slow
def test_recordings_played_again_are_as_near_as_the_page_says():
    traces = [labtrace.Trace(path) for path in sorted((ROOT / "data" / "traces" / "h200").glob("*.gz"))]
    with pytest.warns(ReplayWarning) as warned:
        played = [trace.what_if() for trace in traces]
    assert (len(played), len(warned)) == (9, 1) and "within 5 % in eight of the nine recordings" in PAGES["trust"]
    plain = labcourse.gpu_trace()
    graph_ms = plain.what_if(graph=True).timeline.wall / 1e3 / plain.stamp["steps"]
    assert f"As a graph, the recording of batch 1 predicts {graph_ms:.1f} ms" in PAGES["trust"]


def test_the_example_prints_the_table_below_it():
    example = re.search(r"```python\n(import torch.*?)predict\(step\)\n```\n\n(.*?)\n\n", PAGES["trust"], re.S)
    exec(example[1], names := {})
    printed = pandas.read_csv(io.StringIO(re.sub(" *[|] *", "|", example[2])), sep="|", skiprows=[1]).iloc[:, 1:-1]
    pandas.testing.assert_frame_equal(printed, names["predict"](names["step"]), rtol=0.005)


@pytest.mark.slow
def test_memory_on_the_h200_beside_the_count_is_as_the_page_says():
    ratios, shown = {}, " ".join(PAGES["trust"].split())
    for row in read_results(ROOT / "data" / "results" / "h200.json")["rows"].values():
        speedups = [name for name in row["speedups"] if name not in ("graph", "streams")]  # not of the count
        if row["kind"] in ("timing", "race") and row["tf32"] == "default" and "channels_last" not in speedups:
            *_, last = from_json(row["comparison"]).itertuples()
            model = getattr(labkit, row["model"])(**row["settings"])
            counted = labkit.simulate.step_memory(model, *speedups, batch_size=row["batch_size"])
            key = row["model"], row["batch_size"], len(row["speedups"])
            ratios[key] = last.peak_bytes / counted
            gigabytes = f"{last.peak_bytes / 1e9:.1f} GB at batch 16 (counted {counted / 1e9:.1f})"
            assert key != ("CycleGAN", 16, 0) or gigabytes in shown
    ours = [ratio for (model, *_), ratio in ratios.items() if model == "CycleGAN"]
    assert f"CycleGAN's peaks are {min(ours):.2f} to {max(ours):.2f} times the count" in shown
    one = ratios["DeviationGAN", 16, 0], ratios["DeviationGAN", 1, 0]
    assert "One generator's are {:.2f} times the count at batch 16, and {:.1f} times at batch 1".format(*one) in shown
