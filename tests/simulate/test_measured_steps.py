"""The model beside steps that others measured on GPUs: as close as it is now, or closer."""

from pathlib import Path

import numpy
import pandas
import pytest
import simulated_steps

from labkit.simulate import error_range, measured
from labkit.simulate.operator_replay import RANGES

ROOT = Path(__file__).parents[2]
STEPS = pandas.read_csv(simulated_steps.TABLE).query("seen != 'fitted'")
STEPS["ratio"] = STEPS["SIMULATED_ms"] / STEPS["measured_ms"]
PLAIN = STEPS.query("dtype != 'autocast' and kind.str.endswith('convolutions') and device in ('A100', 'V100')")
CHOSEN_BY = STEPS.query("seen == 'half'")["network"]
AFTER = STEPS.query("dtype == 'autocast' and device in ('A100', 'RTX 3090', 'RTX 4090') and network not in @CHOSEN_BY")


@pytest.mark.slow
def test_the_file_has_what_the_model_says_now_of_a_step_of_each_kind_device_and_use():
    for row in pandas.read_csv(simulated_steps.TABLE).groupby(["kind", "device", "use"]).tail(1).itertuples():
        milliseconds, decides = simulated_steps.simulated(row)
        assert milliseconds == pytest.approx(row.SIMULATED_ms, rel=0.005) and decides == row.decides, row.what


def quantiles(rows, *places):
    """Of the ratios, where each network counts once."""
    rows = rows.sort_values("ratio")
    weight = 1 / rows.groupby("network")["ratio"].transform("size")
    return numpy.interp(places, (weight.cumsum() - weight / 2) / weight.sum(), rows["ratio"])


def left_out(rows, place):
    """The share of a network's steps in the range that the others give, from this place to as far from the top."""
    ranges = {name: quantiles(rows[rows["network"] != name], place, 1 - place) for name in set(rows["network"])}
    held = [low <= one.ratio <= high for one in rows.itertuples() for low, high in [ranges[one.network]]]
    return rows.assign(held=held).groupby("network")["held"].mean().mean()


def known(rows):
    """The devices of a kind, the range of `RANGES` and the share it holds, or None where too few networks are known."""
    rows = rows.groupby("device").filter(lambda own: own["network"].nunique() > 1)
    if rows["network"].nunique() < 5:
        return None
    place = next((place for place in (0.1, 0.08, 0.06, 0.04, 0.02) if left_out(rows, place) >= 0.8), 0)
    return rows, quantiles(rows, place, 1 - place), left_out(rows, place)


def test_ranges_hold_for_networks_that_were_left_out_and_the_page_quotes_them():
    page, total = (ROOT / "docs" / "trust.md").read_text("utf-8"), 0
    for kind, rows in STEPS.query("decides == 'GPU'").groupby("kind"):
        called = "none"
        if found := known(rows):
            kept, ends, held = found
            devices, *own = RANGES.loc[kind]
            assert own == ends.round(2).tolist() and 0.75 < held < 0.9
            assert set(devices.split("; ")) == set(kept["device"])
            called = "{:.2f} to {:.2f}; {:.0%}; {}".format(*own, held, devices.replace(";", ","))
            total += len(kept)
        assert (kind in RANGES.index) == bool(found)
        counts = f"{rows['network'].nunique()} | {len(rows)} | {rows['ratio'].median():.2f}"
        assert f"| {kind} | {counts} | {called} |" in page, (kind, counts, called)
    assert f"{total} of the {len(STEPS)} steps" in page and total > 2 / 3 * len(STEPS)


def test_the_page_quotes_the_table():
    assert STEPS["source"].str.startswith("https://github.com/").all() and measured().attrs["stamp"]["SIMULATED"]
    low, median, high = quantiles(PLAIN, 0.1, 0.5, 0.9)
    assert (round(low, 1), round(high, 1)) == error_range()
    page = " ".join((ROOT / "docs" / "trust.md").read_text("utf-8").split())
    assert f"has {len(measured())} of their steps" in page and f"There are {len(PLAIN)} steps of networks of" in page
    ends = f"all of them between {PLAIN['ratio'].min():.2f} and {PLAIN['ratio'].max():.2f}"
    assert f"percentile are {low:.2f} and {high:.2f}" in page and ends in page and f"median is {median:.2f}" in page
    median, *ends = AFTER["ratio"].quantile([0.5, 0.1, 0.9])
    text = f"{len(AFTER)} steps of networks by which nothing was chosen: a median of {median:.2f}"
    assert 0.85 < median < 1.15 and text in page and "from {:.2f} to {:.2f}".format(*ends) in page
    for device, own in STEPS.query("decides == 'host'").groupby("device")["ratio"]:
        assert "| {} | {} | {:.2f} | {:.2f} to {:.2f} |".format(device, len(own), *own.quantile([0.5, 0, 1])) in page
    own = STEPS.set_index("network")
    halves = own.query("device == 'A100' and dtype == 'float16'")["ratio"]
    bottlenecks = halves[["resnet50", "resnet152", "resnext50_32x4d"]]
    assert f"at {bottlenecks.min():.2f} to {bottlenecks.max():.2f}: ResNet-50, ResNet-152 and ResNeXt." in page
    assert f"is too fast: {halves['alexnet']:.2f}." in page
    t4 = own.loc["resnet50"].query("device == 'T4' and dtype == 'float32' and batch >= 8")["ratio"]
    assert f"from a batch of 8 on, are {t4.min():.2f} to {t4.max():.2f} of the measured" in page
    nvidia = STEPS[STEPS["source"].str.contains("DeepLearningExamples")].query("use == 'inference'")
    assert f"up to {1 / nvidia['ratio'].min():.1f} times as long as simulated" in page
    assert 4.5 < 1 / STEPS["ratio"].min() < 5 and "up to five times as long as simulated" in page
