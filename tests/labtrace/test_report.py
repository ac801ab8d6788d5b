"""The report on a trace: sentences first, then figures, on one page that opens without a network; and as data."""

import json
import re

import pytest
from synthetic_trace import SyntheticTrace, two_ranks

import labcourse
import labkit
from labkit import show


def page(traces, tmp_path):
    return show.trace_report(traces, tmp_path / "report.html").read_text()


def figures(text):
    """The titles of the page's figures."""
    found = re.findall('<script type="application/json">(.*?)</script>', text, re.DOTALL)
    titles = [json.loads(figure)["layout"]["title"]["text"].partition("<br><sub>")[0] for figure in found]
    return [title.replace("<br>", " ") for title in titles]


def test_findings_verdict_and_advice_stand_above_the_figures(two_streams, tmp_path):
    trace = SyntheticTrace()
    for number in range(30):
        trace.launch(200 * number, 200 * number + 10, 100)
    trace.call(210)
    text = page(labkit.Trace(trace.save(tmp_path / "a.json")), tmp_path)
    places = [
        text.index(part)
        for part in (
            "launches whose kernel is missing",
            "<b>As far as this recording tells, the GPU",
            "What to try",
            "figure",
        )
    ]
    assert places[0] < places[1] < places[2] and text.index('class="figure"') > places[2]
    assert "torch.compile" in text  # the advice on launches
    assert "cannot tell" not in page(two_streams, tmp_path)


def test_the_page_and_the_data_of_a_folder_have_a_line_for_each_rank(tmp_path):
    for number, trace in enumerate(two_ranks()):
        for place in range(25):
            trace.launch(300 + 9 * place, 305 + 9 * place, 5, name=f"kernel {place}")
        trace.save(tmp_path / f"{number}.json")
    folder = labkit.Trace(tmp_path)
    text = page(folder, tmp_path)
    assert "Rank 1 is the straggler" in text and "sending µs" in text and "cannot tell" not in text
    table = text[text.index("of rank") :].partition("</table>")[0]
    assert re.findall(r"<tr>\s*<td>(\d+)</td>", table) == ["0", "1"]
    found = show.report_data(folder)[folder.ranks[0].recording.file.name]
    assert [row["rank"] for row in found["communication"]] == [0, 1]
    assert [row["rank"] for row in found["kernels"]] == [0] * 20 + [1] * 20


def test_the_timeline_is_of_the_median_step(tmp_path):
    trace = SyntheticTrace()
    for number, (begin, kernel) in enumerate([(0, 100), (500, 300), (1000, 200), (1500, 200)]):
        trace.event("user_annotation", f"ProfilerStep#{number}", begin, 450)
        trace.launch(begin + 1, begin + 10, kernel)
    text = page(labkit.Trace(trace.save(tmp_path / "a.json")), tmp_path)
    assert any(title.startswith("Timeline") for title in figures(text)) and "only step " in text


def test_the_page_is_small_and_asks_no_network(two_streams, tmp_path):
    text = page({"one": two_streams, "two": two_streams}, tmp_path)
    assert len(text) < 3e6 and not re.search(r'(src|href)="http', text)
    assert "<h2>one</h2>" in text and "<h2>two</h2>" in text


def test_a_trace_of_a_cpu_has_its_own_verdict_and_figures(on_a_cpu, tmp_path):
    text = page(on_a_cpu, tmp_path)
    assert [title.partition(",")[0] for title in figures(text)] == [
        "Where a step's time went on the processor",
        "Timeline of the processor",
        "The ranges that took most of the host's time",
        "Operators and CUDA calls by their own time on the host",
    ]
    assert "<b>The processor spends " in text and "Amdahl" in text and "SIMULATED" not in text


def test_the_data_are_those_of_the_tables(two_streams):
    found = json.loads(json.dumps(show.report_data({"two": two_streams})))["two"]
    assert found["stamp"]["device"] == "NVIDIA Imaginary"
    assert found["idle"][0]["us"] == two_streams.idle()["us"][0]
    assert found["remedies"][0]["cause"] == two_streams.remedies()["cause"][0]
    assert "record_shapes" in found["achieved"]


@pytest.mark.parametrize("view", ["path", "achieved"])
def test_views_of_a_recording_with_shapes(view):
    trace = labcourse.public_trace("resnet50_workers4")
    figure = show.trace(trace, view)
    table = trace.critical_path() if view == "path" else trace.achieved()
    column, scale = ("share_of_wall", 1) if view == "path" else ("us", 1e3)
    drawn = sorted((x for bar in figure.data for x in bar.x), reverse=True)
    expected = table[column].sort_values(ascending=False).head(len(drawn)) / scale
    assert len(drawn) in (12, 15) and drawn == pytest.approx(expected.tolist())
