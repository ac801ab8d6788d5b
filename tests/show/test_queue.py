"""The launch queue, drawn: as steps, and thinned without losing its extremes."""

import numpy as np
from synthetic_trace import SyntheticTrace, two_streams

from labkit import show
from labtrace import Trace


def test_the_queue_is_drawn_as_steps(tmp_path):
    trace = Trace(two_streams().save(tmp_path / "two.json"))
    figure = show.queue_figure({"two": trace})
    line = figure.data[0]
    assert line.line.shape == "hv" and list(line.x) == trace.queue()["time_us"].tolist()
    assert list(line.y) == trace.queue()["waiting"].tolist()
    assert "<td>3</td>" in figure.layout.meta["table"] and "2,000" not in figure.layout.xaxis.title.text
    assert figure.layout.shapes[0].y0 == trace.queue()["mean"].iloc[0]


def test_a_thinned_queue_keeps_its_maximum(tmp_path):
    trace = SyntheticTrace().launches(1500, 0, 5, 4, every=10).launch(7000.5, 7005.5, 0.1)
    trace = Trace(trace.save(tmp_path / "many.json"))
    figure = show.queue_figure(trace)
    times, waiting = np.array(figure.data[0].x), figure.data[0].y
    assert len(times) <= 2000 < len(trace.queue()) and max(waiting) == 2 and min(waiting) == 0
    assert "2,000 points" in figure.layout.xaxis.title.text and (np.diff(times) > 0).all()
