"""An all-reduce in a ring, round by round, with a play button."""

from __future__ import annotations

import plotly.graph_objects as go

from labkit.show.style import COLOURS

RANKS = 4
PART_COLOURS = list(COLOURS.values())[:RANKS]


def ring_figure() -> go.Figure:
    """How many ranks' numbers each part is the sum of, on each of four ranks, after every round of a ring's all-reduce.

    A bar is a part on a rank. In each round a rank sends one part to the next, first to be added, and then as it is.
    """
    summands = [[1] * RANKS for _ in range(RANKS)]  # by rank and part
    frames = [_frame(summands, "start")]
    for number in range(2 * (RANKS - 1)):
        sent = [((rank - number) % RANKS, summands[rank][(rank - number) % RANKS]) for rank in range(RANKS)]
        for rank, (part, many) in enumerate(sent):
            after = summands[(rank + 1) % RANKS]
            after[part] = many if number >= RANKS - 1 else after[part] + many
        frames.append(_frame(summands, f"round {number + 1}"))
    figure = go.Figure(frames[0].data, frames=frames)
    figure.update_yaxes(title="ranks in the sum", range=[0, RANKS + 0.2], dtick=1)
    timing = dict(frame=dict(duration=1200), transition=dict(duration=400), mode="immediate")
    steps = [dict(label=frame.name, method="animate", args=[[frame.name], timing]) for frame in frames]
    play = dict(label="Play", method="animate", args=[None, timing | {"fromcurrent": True}])
    return figure.update_layout(
        title="A ring's all-reduce: half of the rounds add, the other half pass on",
        barmode="group",
        height=420,
        sliders=[dict(steps=steps, x=0.12, len=0.88)],
        updatemenus=[dict(type="buttons", buttons=[play], x=0, y=-0.14, xanchor="left", yanchor="top")],
        meta={
            "text": f"Each of {RANKS} ranks has {RANKS} parts. After {RANKS - 1} rounds of adding each rank has one "
            f"complete sum, and after as many rounds of passing on all of them."
        },
    )


def _frame(summands: list[list[int]], name: str) -> go.Frame:
    ranks = [f"rank {rank}" for rank in range(RANKS)]
    columns = zip("wxyz", PART_COLOURS, zip(*summands, strict=True), strict=True)
    bars = [go.Bar(x=ranks, y=sums, name=f"part {part}", marker_color=colour) for part, colour, sums in columns]
    return go.Frame(data=bars, name=name)
