"""The report on a trace: sentences first, then figures, on one page that opens without a network; and as data."""

import itertools
import json
import re

import pytest
from synthetic_trace import SyntheticTrace, two_ranks

from labtrace import Trace
from labtrace.show import report
from labtrace.show.bars import merged, some_ranks


def page(traces, tmp_path):
    return report.trace_report(traces, tmp_path / "report.html").read_text()


def figures(text):
    """The titles of the page's figures."""
    return re.findall('<h2>([^<]*)</h2><div class="figure"', text)


def test_findings_verdict_and_advice_stand_above_the_figures(two_streams, tmp_path):
    trace = SyntheticTrace().launches(30, 0, 10, 100, every=200)
    trace.call(210)
    text = page(Trace(trace.save(tmp_path / "a.json")), tmp_path)
    parts = ["<b>As far as this recording tells, the GPU", "launches whose kernel is missing"]
    parts += ["What took most time, by name", "What to try", 'class="figure"']
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert "torch.compile" in text  # the advice on launches
    assert "cannot tell" not in page(two_streams, tmp_path)


def test_the_page_and_the_data_of_a_folder_have_a_line_for_each_rank(load, tmp_path):
    traces = two_ranks()
    for trace, place in itertools.product(traces, range(25)):
        trace.launch(300 + 9 * place, 305 + 9 * place, 5, name=f"kernel {place}")
    folder = load(*traces)
    text = page(folder, tmp_path)
    assert "Rank 1 is the straggler" in text and "sending µs" in text and "cannot tell" not in text
    table = text[text.index("times the others") :].partition("</table>")[0]
    assert re.findall("<td>(.*?)</td>", table)[1:7:5] == ["gemm", "1.7"], "a median of 200 us, and 120"
    assert figures(text)[0] == "How long each rank waited for the others"
    assert figures(text)[1] == "Timeline of host and GPU, 0 to 270 µs (only step 0)"
    assert figures(text)[2] == "Where the wall time of the GPU went"
    assert "rank 0" not in text.partition("The kernels and memory operations")[2], "details of the straggler alone"
    table = text[text.index(">The ranks<") :].partition("</table>")[0]
    assert re.findall(r"<tr>\s*<td>(\d+)</td>", table) == ["0", "1"]
    remedies = re.findall("<td>(.*?)</td>", text[text.index("What to try") :].partition("</table>")[0])
    assert remedies[:4] == ["All 2 ranks", "matrix products, in half the time", "24.4 to 73.6%", "1.32 to 1.67"]
    found = report.report_data(folder)[folder.ranks[0].recording.file.name]
    assert [row["rank"] for row in found["communication"]] == [0, 1]
    assert [row["rank"] for row in found["kernels"]] == [0] * 20 + [1] * 20


def test_what_several_ranks_have_in_common_is_said_once(load):
    each = [(SyntheticTrace(rank=number), 48 if number == 2 else 49) for number in range(4)]
    folder = load(*(trace.launches(50, 0, 100, us, every=20, gpu_every=50) for trace, us in each))
    said = report.report_text(folder)
    assert said.startswith("All 4 ranks: The GPU is busy 96 to 98% of the time")
    assert said.count("SIMULATED") == said.count("could bring") == 1 and "straggler" not in said
    assert some_ranks([3, 0, 1], folder) == "Ranks 0, 1 and 3" and some_ranks([2], folder) == "Rank 2"
    assert merged(["gemm_64 took 1,020 ms (9%)", "gemm_64 took 1.5 ms (9%)"]) == "gemm_64 took 1.5 to 1,020 ms (9%)"


def test_the_page_is_small_and_asks_no_network(two_streams, tmp_path):
    text = page({"one": two_streams, "two": two_streams}, tmp_path)
    assert len(text) < 3e6 and not re.search(r'(src|href)="http', text)


@pytest.mark.slow
def test_two_recordings_are_a_comparison(tmp_path):
    """The sentence, each one's verdict, the steps, the work by kind, what changed: on the terminal and on the page."""
    traces = {}
    for name, us, kernel in (("before", 200, "ampere_sgemm"), ("after", 100, "ampere_fp16_gemm")):
        trace = SyntheticTrace()
        for step in range(4):
            trace.event("user_annotation", f"ProfilerStep#{step}", 400 * step, 390)
            trace.operator("aten::mm", 400 * step, 20)
            trace.launch(400 * step + 1, 400 * step + 10, us, name=kernel)
        traces[name] = Trace(trace.save(tmp_path / f"{name}.json"))
    said, text = report.report_text(traces), page(traces, tmp_path)
    parts = (
        "A step took 400 us and takes 400: the same, within the spread of the steps; the GPU waited 43% of the time",
        "before: The GPU waits",
        "after: The GPU waits",
        "The steps",
        "by kind",
        "What changed in a step, by operator",
    )
    for whole in (said, text):
        places = [whole.index(part) for part in parts]
        assert places == sorted(places)
    assert text.index('class="figure"') > text.index(parts[-1])
    assert re.search("aten::mm +200.0 +100.0 +-100.0 faster", said) and "appeared" not in said
    found = report.report_data(traces)["after"]["comparison"]
    assert found["words"] == said.partition("\n")[0] and found["kind"][0]["after_us"] == 100
    assert "comparison" not in report.report_data({**traces, "third": traces["after"]})["after"]


def test_recordings_that_cannot_be_compared_are_reported_nevertheless(two_streams, on_a_cpu, tmp_path):
    said = report.report_text({"gpu": two_streams, "cpu": on_a_cpu})
    assert said.startswith("A step took 400 us and takes 50: 8.00 times faster. A single step does not tell")
    assert "Only one of these traces has GPU activity" in said and "cpu: The processor" in said and "kind" not in said
    unmarked = Trace(SyntheticTrace().launch(0, 10, 50).save(tmp_path / "unmarked.json"))
    said = report.report_text({"marked": two_streams, "unmarked": unmarked})
    assert said.startswith("unmarked.json: no steps") and "\nunmarked: The GPU is busy" in said


def test_work_is_worth_its_half_and_what_is_worth_nothing_is_not_told(tmp_path):
    trace = SyntheticTrace().launches(2000, 0, 100, 50, every=5, gpu_every=50).launch(20_000, 100_100, 1, name="relu")
    text = page(Trace(trace.save(tmp_path / "a.json")), tmp_path)
    table = text[text.index("What to try") :].partition("</table>")[0]
    assert re.findall("<td>(.*?)</td>", table)[:3:2] == ["matrix products, in half the time", "2.00"]
    assert table.count("<tr") == 2, "the heading and one cause"


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
    found = json.loads(json.dumps(report.report_data({"two": two_streams})))["two"]
    assert found["stamp"]["device"] == "NVIDIA Imaginary"
    assert found["idle"][0]["us"] == two_streams.idle()["us"][0]
    assert found["remedies"][0]["cause"] == two_streams.remedies()["cause"][0]
    assert "record_shapes" in found["achieved"]


def test_the_view_of_shapes(public_trace):
    trace = public_trace("resnet50_workers4")
    figure = report.trace(trace, "achieved")
    drawn = sorted((x for bar in figure.data for x in bar.x), reverse=True)
    expected = trace.achieved()["us"].sort_values(ascending=False).head(len(drawn)) / 1e3
    assert len(drawn) in (12, 15) and drawn == pytest.approx(expected.tolist())
