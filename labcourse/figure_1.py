"""Figure 1 of the course paper: a step of its two streams on an A100, read off the picture, and what it answers."""

from __future__ import annotations

import pandas
import plotly.graph_objects as go

from labcourse.paper import COMMIT, REPOSITORY, TITLE
from labcourse.shipped import shipped
from labtrace.events.intervals import busy
from labtrace.show.bars import Looks, bars
from labtrace.show.style import BELOW, BY_KIND, UNUSED

READ_OFF = "read off the course paper's Figure 1"
ERROR_MS = 0.7  # a pixel
KERNELS, SLOW, SPAN = "kernels", "slow kernel", "span of the step"
LOOKS: Looks = {
    KERNELS: ("kernels", BY_KIND["compute"], ""),
    SLOW: ("of them, the slow kernel", "#0072B2", "x"),
    SPAN: ("the profiler's span of the step", UNUSED, "/"),
}


def paper_figure() -> pandas.DataFrame:
    """The lower half of the course paper's Figure 1: when kernels run in a step with two streams, ResNet-9, batch 16.

    data/paper/README.md says how it was read off. Times are within 0.7 ms, and count from the picture's left edge. The
    copies of the step's pictures from the host, 11.3 ms, lie left of it.

    Returns:
        | column | meaning |
        |---|---|
        | lane | main, stream 1 or stream 2 |
        | what | kernels that follow one another; slow kernel, a part of these; span of the step, ``ProfilerStep#10`` |
        | begin_ms, end_ms | in milliseconds |

    Raises:
        LabkitError: data/paper is not here.
    """
    table = pandas.read_csv(shipped("paper/figure1_b16.csv")[0])
    source = {"recorded by others": TITLE, "source": REPOSITORY, "commit": COMMIT, "device": "NVIDIA A100"}
    table.attrs["stamp"] = source | {"read off": "Figure 1", "error_ms": ERROR_MS, "batch_size": 16, "streams": 2}
    return table


def paper_timeline() -> go.Figure:
    """`paper_figure` as a timeline: main and the two side streams, each under the profiler's span of a step."""
    table = paper_figure()
    lanes = table["lane"].drop_duplicates()
    places = pandas.DataFrame({"place": [name for lane in lanes for name in (f"{lane}, span", lane)]})
    place = table["lane"] + (table["what"] == SPAN).map({True: ", span", False: ""})
    drawn = table.assign(place=place, series=table["what"], value=table["end_ms"] - table["begin_ms"])
    drawn = drawn.assign(begin=table["begin_ms"]).drop(columns=["lane", "what"])
    figure = bars(pandas.concat([places, drawn]), LOOKS, "milliseconds from the picture's left edge")
    title = "A step of CycleGAN on two streams, batch 16"
    stamp = f"NVIDIA A100, {READ_OFF}, within {ERROR_MS} ms"
    words = (
        f"{title}. {stamp}. The lanes main, stream 1 and stream 2, 0 to {table['end_ms'].max():.0f} milliseconds. "
        "First stream 1 and stream 2 run the forward passes of the cycles together, then main runs, and then the "
        "backward passes. Six times the slow kernel runs, for about 17 ms each, while the other lanes are empty."
    )
    figure.update_yaxes(automargin=True).update_xaxes(range=[0, table["end_ms"].max()])
    legend = dict(orientation="h", x=0, y=0, yref="container", yanchor="bottom")
    look = dict(barmode="overlay", height=figure.layout.height + 20, margin_b=BELOW, legend=legend)
    named = table.rename(columns={"begin_ms": "begin, ms", "end_ms": "end, ms"}).to_html(index=False, border=0)
    return figure.update_layout(title=f"{title}<br><sub>{stamp}</sub>", meta={"text": words, "table": named}, **look)


def _busy(*parts: pandas.DataFrame) -> float:
    rows = pandas.concat(parts)
    return busy(rows["begin_ms"].to_numpy(), rows["end_ms"].to_numpy())


def figure_times(figure: pandas.DataFrame) -> dict[str, float]:
    """Three times of a picture such as `paper_figure`, in milliseconds.

    Returns:
        | key | meaning |
        |---|---|
        | busy | a kernel runs in at least one lane |
        | counted_twice | by how much the sum of the lanes' busy times is longer |
        | alone | the slow kernel runs, and no kernel in another lane |
    """
    kernels, slow = (figure[figure["what"] == what] for what in (KERNELS, SLOW))
    of_lanes = sum(_busy(rows) for _, rows in kernels.groupby("lane"))
    alone = 0.0
    for lane, rows in slow.groupby("lane"):
        others = kernels[kernels["lane"] != lane]
        alone += _busy(rows, others) - _busy(others)
    return {"busy": _busy(kernels), "counted_twice": of_lanes - _busy(kernels), "alone": alone}
