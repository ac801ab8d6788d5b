"""The model beside steps that others measured on GPUs: as close as it is now, or closer."""

from pathlib import Path

import pandas
import pytest

import labkit
from labkit.simulate import error_range, measured, measured_steps

ROOT = Path(__file__).parents[2]
HOST_BOUND = {  # a slower host than the lab's explains them
    "shufflenet_v2_x1_0, inference, batch 128",
    "resnet18, training, batch 16",
    "mobilenet_v3_large, training, batch 32",
    "resnext50_32x4d, training, batch 8",
}


@pytest.fixture(scope="module")
def table():
    return measured(now=True)


@pytest.mark.slow
def test_the_model_is_within_its_bars_of_what_others_measured(table):
    ratio = table.set_index(["what", "device"])["ratio"]
    outside = ratio[~ratio.between(0.8, 1.25)]
    assert set(outside.index.get_level_values("what")) <= HOST_BOUND and (outside > 0.7).all(), outside
    assert 0.97 < ratio.median() < 1.03 and len(ratio) == 39


@pytest.mark.slow
def test_a_host_of_26_to_27_us_explains_the_steps_below_the_range():
    rows = pandas.read_csv(measured_steps.TABLE).query("what in @HOST_BOUND")
    for row in rows.itertuples():
        least, most = (measured_steps._milliseconds(row, host_us) for host_us in (25.5, 27.5))
        assert len(rows) == 4 and least < row.measured_ms < most, row.what


@pytest.mark.slow
def test_the_file_has_what_the_model_says_now(table):
    pandas.testing.assert_series_equal(measured()["SIMULATED_ms"], table["SIMULATED_ms"], rtol=0.005)


def test_the_error_range_holds_eight_of_ten_steps():
    assert measured()["ratio"].quantile([0.1, 0.9]).tolist() == pytest.approx(error_range(), abs=0.03)


def test_the_readme_and_the_page_quote_the_table():
    ratio = measured()["ratio"]
    many, least, median, most = len(ratio), *(f"{ratio.quantile(place):.2f}" for place in (0, 0.5, 1))
    readme, page = (
        " ".join((ROOT / name).read_text(encoding="utf-8").split()) for name in ("README.md", "docs/trust.md")
    )
    assert f"[{many} steps" in readme and f"{least} to {most} of the measured ones, with a median of {median}" in readme
    assert f"has {many} of their steps" in page and f"is {median}. " in page and f"between {least} and {most}" in page


def test_every_step_has_a_public_source_and_the_table_says_simulated():
    table = measured()
    assert table["source"].str.startswith("https://github.com/").all() and table["what"].str.len().all()
    assert table.attrs["stamp"]["SIMULATED"] is True


def test_the_figure_has_all_steps_and_says_simulated():
    table = measured()
    figure = labkit.show.measured_figure()
    assert sum(len(points.x) for points in figure.data) == len(table)
    assert "SIMULATED" in figure.layout.title.text and f"{table['ratio'].median():.2f}" in figure.layout.title.text
