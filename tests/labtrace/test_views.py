"""The views of traces hold the tables' numbers, and tell them in their text alternative."""

import html
import re

import pandas
import plotly.graph_objects as go
import pytest
from synthetic_trace import SyntheticTrace

from labtrace import show
from labtrace.errors import LabError, TraceError
from labtrace.show.bars import readable
from labtrace.show.style import in_words
from labtrace.show.views import VIEWS

ON_A_CPU = ["operators", "ranges", "communication"]
OF_A_GPU = [view for view in VIEWS if view not in ("timeline", "achieved", "processor", *ON_A_CPU)]


def bars(figure, axis="x"):
    """The lengths of the bars in one panel, by the names of legend and bar."""
    drawn = [bar for bar in figure.data if (bar.xaxis or "x") == axis]
    return {(bar.name, y): x for bar in drawn for y, x in zip(bar.y, bar.x, strict=True)}


def told(figure):
    """The rows of the table in a figure's text alternative, each by the names of its columns."""
    rows = re.findall("<tr.*?</tr>", figure.layout.meta["table"], re.DOTALL)
    names, *rows = [[html.unescape(cell) for cell in re.findall("<t[hd]>(.*?)</t[hd]>", row)] for row in rows]
    return [dict(zip(names, row, strict=True)) for row in rows]


def notes(figure):
    return [note.text for note in figure.layout.annotations]


def test_each_panel_says_whose_times_are_simulated(two_streams, tmp_path):
    replayed = SyntheticTrace(labkit={"SIMULATED": True, "device": "SIMULATED A100"}).launch(0, 10, 20)
    file = replayed.save(tmp_path / "replayed.json")
    alone = show.trace({"replayed": file}, "kernels")
    assert notes(alone).count("<b>SIMULATED</b>") == 1 and "<b>SIMULATED</b> A100" in alone.layout.title.text
    assert notes(show.trace({"two": two_streams, "replayed": file}, "kernels")).count("<b>SIMULATED</b>: replayed") == 2
    assert not any("SIMULATED" in note for note in notes(show.trace({"two": two_streams}, "kernels")))


def test_a_long_heading_is_broken_into_lines_for_which_the_figure_grows(two_streams):
    long = show.trace({" ".join(["long"] * 40): two_streams}, "communication").layout
    short = show.trace({"short": two_streams}, "idle").layout
    lines = re.sub("</?(sub|b)>", "", long.title.text).split("<br>")
    assert len(lines) == 5 and max(map(len, lines)) <= 78
    assert long.margin.t - short.margin.t == long.height - short.height == 60


@pytest.mark.parametrize("view", [*OF_A_GPU, *ON_A_CPU])
def test_every_figure_says_its_subject_and_the_stamps(view, two_streams, one_kernel):
    figure = show.trace({"two": two_streams, "one": one_kernel}, view)
    assert type(figure) is go.Figure
    stamps = "two: NVIDIA Imaginary, torch 2.11.0; one: not recorded by labkit"
    title, stamp = re.sub("</?b>", "", figure.layout.title.text).removesuffix("</sub>").split("<br><sub>")
    title = title.replace("<br>", " ")
    assert title and stamp == stamps
    text = figure.layout.meta["text"]
    assert text.startswith(title.replace("<br>", " ")) and text.endswith(f"{stamps}.")
    assert text in html.unescape(in_words(figure)) and figure.layout.meta["table"] in in_words(figure)
    if view != "summary":
        assert {row["recording"] for row in told(figure)} <= {"two", "one"} and "two" in told(figure)[0].values()
    if view not in ("summary", "hta"):  # a table has no axes, and shows everything
        for bar in figure.data:
            assert bar.hovertemplate or all(bar.hovertext)
        assert any(axis.title.text for axis in figure.select_xaxes())


@pytest.mark.parametrize("view", [*OF_A_GPU, *ON_A_CPU])
def test_names_are_shown_literally_and_not_as_html(view, load):
    trace = SyntheticTrace().range("ProfilerStep#0", 0, 100).range("labkit: <i>mine</i>", 0, 100)
    trace.operator("<i>mul</i>", 0, 100)
    trace.launch(10, 20, 90, name="<i>gemm</i>").launch(50, 150, 90, name="<i>gemm</i>")
    figure = show.trace({"a<b> & c": load(trace)}, view)
    shown = in_words(figure)
    assert "a&lt;b&gt; &amp; c" in shown and "<b>" not in shown and "<i>" not in shown and "&amp;lt;" not in shown
    drawn = figure.update_layout(meta=None).to_json().replace(r"\u003c", "<").replace(r"\u0026", "&")
    assert "a<b>" not in drawn and "<i>" not in drawn and "a&lt;b&gt; &amp; c" in drawn and "&amp;lt;" not in drawn


def test_an_unknown_view_is_an_error_that_names_the_known_ones(two_streams):
    with pytest.raises(LabError, match="view='idel'.*'idle'.*temporal.*timeline"):
        show.trace(two_streams, "idel")


def test_temporal_shares_are_of_the_wall_time(two_streams, one_kernel):
    figure = show.trace({"two": two_streams, "one": one_kernel}, "temporal")
    shown = bars(figure)
    assert shown["idle", "two"] == pytest.approx(220 / 600) and shown["idle", "one"] == 0
    assert shown["compute", "two"] == pytest.approx(340 / 600) and shown["memory", "two"] == pytest.approx(40 / 600)
    assert "340.0" in figure.data[1].hovertext[0] and "89.5%" in figure.data[1].hovertext[0]
    rows = {row["part"]: row for row in told(figure) if row["recording"] == "two"}
    assert rows["wall"]["µs"] == "600.0" and rows["compute"]["share of busy"] == "89.5%"
    assert rows["idle"] == {"recording": "two", "part": "idle", "µs": "220.0", "share of wall": "36.7%",
                            "share of busy": "n/a"}  # fmt: skip
    assert figure.layout.barmode == "stack"


@pytest.mark.parametrize("view", sorted({*OF_A_GPU, *ON_A_CPU} - {"remedies", "gaps", "ranges"}))
def test_a_share_of_nothing_is_not_a_number_to_show(view, load):
    figure = show.trace(load(SyntheticTrace().range("ProfilerStep#0", 0, 4).launch(0, 5, 0)), view)
    assert "nan" not in in_words(figure).lower()
    assert not any("nan" in (text or "").lower() for bar in figure.data for text in getattr(bar, "hovertext", ()) or ())


def test_remedies_are_bars_with_their_factor_and_advice_and_say_what_they_are(two_streams, load):
    figure = show.trace({"two": two_streams}, "remedies")
    table = two_streams.remedies().set_index("cause")
    (shown,) = figure.data
    assert dict(zip(shown.y, shown.x, strict=True)) == pytest.approx(table["share_of_wall"].to_dict())
    assert shown.text[0] == f"{table['times_faster_at_most'].iloc[0]:.2f}x" and "try: " in shown.hovertext[0]
    assert "SIMULATED" in figure.layout.title.text
    with pytest.raises(LabError, match="played again without a change"):
        unplayable = SyntheticTrace().launches(3, 0, 100, 10, every=10, gpu_every=200)
        show.trace({"two": two_streams, "odd": load(unplayable)}, "remedies")
    with pytest.raises(LabError, match="its kernels took no time"):
        show.trace(load(SyntheticTrace().launch(0, 5, 0)), "remedies")


def test_each_step_has_its_bar(two_streams, one_kernel):
    figure = show.trace({"two": two_streams, "one": one_kernel}, "steps")
    shown = bars(figure)
    assert shown["idle", "step 3"] == 160 and shown["compute", "step 3"] == 240 and shown["memory", "step 4"] == 40
    assert bars(figure, "x2")["idle", "step 7"] == 0
    rows = {(row["step"], row["part"]): row for row in told(figure)}
    assert rows["3", "wall"]["µs"] == "400.0" and rows["3", "idle"]["share of wall"] == "40.0%"
    assert figure.layout.xaxis.matches == "x2", "one scale, so that steps of two recordings can be compared"


def test_gaps_are_summed_by_what_filled_most_of_each(two_streams, one_kernel, load):
    trace = SyntheticTrace()
    for begin, name in ((0, "first"), (100, "load"), (220, "load"), (600, "save")):
        trace.operator(name, begin, 90)
        trace.launch(begin + 80, begin + 90, 20)
    figure = show.trace({"named": load(trace), "two": two_streams, "one": one_kernel}, "gaps")
    shown = [{place: us for (_, place), us in bars(figure, axis).items()} for axis in ("x", "x2")]
    assert shown[0] == {"1. (no single event of the host)": 360, "2. load": 80 + 100}
    assert shown[1] == {"1. (no single event of the host)": 150, "2. (launched kernels that had to wait)": 60,
                        "3. (pauses between kernels)": 10}  # fmt: skip
    assert "Nothing to show: one" in figure.layout.xaxis2.title.text and told(figure)[1]["count"] == "2"


def test_the_summary_is_a_table_with_a_column_for_each_recording(two_streams, one_kernel):
    figure = show.trace({"two": two_streams, "one": one_kernel}, "summary")
    labels, two, one = figure.data[0].cells["values"]
    assert figure.data[0].header["values"] == ("", "<b>two</b>", "<b>one</b>")
    two, one = dict(zip(labels, two, strict=True)), dict(zip(labels, one, strict=True))
    assert two["bound by"] == "host" and "37%" in two["why"]
    assert two["wall µs"] == "600.0" and two["idle of wall"] == "36.7%"
    assert one["host wait of idle"] == "n/a", "as it was never idle"


def test_idle_is_the_device_s(two_streams):
    figure = show.trace({"two": two_streams}, "idle")
    shown = {bar.name.partition("(")[2][:-1]: bar.x[0] for bar in figure.data}
    assert shown == pytest.approx({"host_wait": 124 / 600, "kernel_wait": 36 / 600, "other": 0.1, "unknown": 0})
    assert len({(bar.marker.color, bar.marker.pattern.shape) for bar in figure.data}) == 4
    rows = {row["cause"]: row for row in told(figure)}
    assert len(rows) == len(told(figure)) == 4 and rows["host_wait"]["µs"] == "124.0"
    assert rows["host_wait"]["share of wall"] == "20.7%" and rows["host_wait"]["share of idle"] == "56.4%"
    assert "56.4%" in figure.data[0].hovertext[0]


def test_kernels_are_bars_in_the_colour_of_their_kind(two_streams, one_kernel):
    figure = show.trace({"two": two_streams, "one": one_kernel}, "kernels")
    names = [row["name"] for row in told(figure)]
    assert figure.layout.yaxis.categoryarray[:2] == ("1. gemm", "2. gemm&lt;4, float&gt;(int)")
    assert bars(figure)["compute", "1. gemm"] == 200 and bars(figure)["memory", "4. " + html.escape(names[3])] == 40
    legend = [bar.name for bar in figure.data if bar.showlegend]
    assert notes(figure) == ["two", "one"] and legend == ["compute", "memory"]
    assert told(figure)[0]["share of busy"] == "52.6%" and "share of busy: 52.6%" in figure.data[0].hovertext[0]


def test_host_time_by_range_is_that_of_a_step(load, two_streams, one_kernel, on_a_cpu):
    figure = show.trace({"two": two_streams, "one": one_kernel, "cpu": on_a_cpu}, "ranges")
    assert bars(figure) == {("generators", "1. generators forward"): 195, ("other range", "2. data"): 15}
    assert bars(figure, "x2") == {("generators", "1. generators forward"): 40}
    assert notes(figure) == ["two", "cpu"] and "Nothing to show: one" in figure.layout.meta["text"]
    figure = show.trace(load(SyntheticTrace().range("labkit: data", 0, 30)), "ranges")
    (row,) = told(figure)
    assert bars(figure) == {("other range", "1. data"): 30}, "where no step is marked, of the whole recording"
    assert row["µs per step"] == "n/a" and row["mean µs"] == "30.0"


@pytest.mark.parametrize("view", sorted({*OF_A_GPU} - {"summary"}))
def test_a_cpu_s_trace_raises_what_its_table_raises(view, on_a_cpu):
    with pytest.raises(TraceError, match="GPU"):
        show.trace(on_a_cpu, view)


def test_an_interval_that_ends_before_it_begins_is_refused(two_streams):
    for begin, end in ((300, 100), (float("nan"), 100)):
        with pytest.raises(LabError, match="begin_us=.*has to begin before it ends"):
            show.trace(two_streams, "timeline", begin_us=begin, end_us=end)


def test_only_the_first_kernels_are_drawn(load):
    trace = SyntheticTrace()
    for number in range(30):
        trace.launch(number * 100, number * 100 + 10, 90 - number, name=f"kernel {number}")
    figure = show.trace(load(trace), "kernels")
    assert [row["name"] for row in told(figure)] == [f"kernel {number}" for number in range(12)]


def test_small_numbers_are_not_shown_as_zero():
    table = pandas.DataFrame({"tflop_per_s": [0.0123, 0.0, 12.34], "kernels": [1234, 1, 0]})
    assert readable(table).values.tolist() == [["0.012", "1,234"], ["0.0", "1"], ["12.3", "0"]]
