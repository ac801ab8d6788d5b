"""The figure of steps over the host's time for a launch, and its widget."""

import pandas
import plotly.graph_objects as go
import pytest

from labkit import course


@pytest.fixture
def table():
    """Two steps at two batch sizes: the graph never waits for the host."""
    rows = [
        dict(batch=batch, step=step, host_us=host, wall_us=wall, idle_share=idle, launches=launches)
        for batch, gpu_us in ((1, 40_000.0), (16, 640_000.0))
        for host in (10.0, 40.0, 150.0)
        for step, launches, wall in (
            ("baseline", 3000, max(3000 * host, gpu_us)),
            ("as a <graph>", 1, gpu_us),
        )
        for idle in [1 - gpu_us / wall]
    ]
    return pandas.DataFrame(rows)


def test_each_step_is_a_line_in_each_batch_s_panel(table):
    figure = course.host_figure(table, 40.0)
    assert type(figure) is go.Figure and "SIMULATED" in figure.layout.title.text
    assert [note.text for note in figure.layout.annotations[:2]] == ["batch 1", "batch 16"]
    assert [line.name for line in figure.data] == ["baseline", "as a &lt;graph&gt;"] * 2
    assert [line.showlegend for line in figure.data] == [True, True, False, False]
    assert list(figure.data[0].x) == [10, 40, 150] and list(figure.data[0].y) == [40, 120, 450]
    assert "640.0 ms" in figure.data[2].hovertext[1] and "3,000 launches" in figure.data[2].hovertext[1]
    assert "milliseconds" in figure.layout.yaxis.title.text and "microseconds" in figure.layout.xaxis2.title.text


def test_the_words_tell_the_marked_place(table):
    words = course.host_figure(table, 40.0).layout.meta["text"]
    assert words.startswith("SIMULATED")
    assert "batch 1, baseline: 120.0 ms" in words and "67%" in words and "3,000" in words
    assert "450.0" not in words
