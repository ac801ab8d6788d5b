"""Figures to play with, drawn beforehand for every position of their controls."""

import base64
import io
import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from PIL import Image, ImageSequence

import labkit
from labkit.course import queue_figure
from labkit.show.trace_views import VIEWS
from labkit.speedrun.ladder import records
from tools.website.execute import digest
from tools.website.figures import chooser_html, figure_html

ROOT = Path(__file__).resolve().parents[2]
TRAINING = ROOT / "docs" / "apples_to_oranges.webp"  # tools/moving_picture.py made it
EVERY = 40  # steps from one of its frames to the next
RECORDINGS = {
    "ResNet-50, no loader workers": "resnet50_workers0",
    "ResNet-50, four loader workers": "resnet50_workers4",
    "another training, V100": "v100_nanoseconds",
}
SEEN = "temporal summary remedies idle gaps kinds kernels launches delays queue timeline".split()
HOST_US = [2, 5, 10, 15, 20]
KERNEL_US = [1, 2, 4, 8, 12, 16, 20, 30]
WAYS = {"one stream": {}, "two streams": {"streams": 2}, "one CUDA graph": {"graph": True}}


def draw_stale(pool: Executor, folder: Path) -> list[Future[str]]:
    """Begin to draw those figures that are not in `folder` yet, as FIGURE.html; the results are their names."""
    key = digest(Path(__file__), Path(__file__).with_name("figures.py"), TRAINING)
    if (folder / key).exists():
        return []
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return [pool.submit(draw_into, folder, make, key) for make in FIGURES]


def draw_into(folder: Path, make: Callable[[], str], key: str) -> str:
    """Keep what `make` draws; the last of the figures adds the key that says so."""
    (folder / f"{make.__name__}.html").write_text(make(), encoding="utf-8")
    if len(list(folder.glob("*.html"))) == len(FIGURES):
        (folder / key).touch()
    return make.__name__


def training() -> str:
    """Translations over the steps of a training."""
    figures = [training_figure(frame, EVERY * number) for number, frame in enumerate(frames())]
    steps = [str(EVERY * number) for number in range(len(figures))]
    return chooser_html(
        {"training steps": steps}, {(i,): figure for i, figure in enumerate(figures)}, (len(steps) - 1,)
    )


def frames() -> Iterator[Image.Image]:
    """The frames of the moving picture."""
    with Image.open(TRAINING) as film:
        for frame in ImageSequence.Iterator(film):
            yield frame.convert("RGB")


def training_figure(picture: Image.Image, steps: int) -> dict[str, Any]:
    """Apples above their translations."""
    file = io.BytesIO()
    picture.save(file, "webp", quality=70, method=6)
    source = f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"
    figure = go.Figure(go.Image(source=source, hoverinfo="skip"))
    figure.update_xaxes(visible=False).update_yaxes(visible=False)
    return figure.update_layout(
        title=f"Apples to oranges after {steps} of 1200 training steps",
        width=picture.width,
        height=picture.height + 50,
        margin=dict(l=0, r=0, t=50, b=0),
        meta={"text": f"A row of six apples, and below it the same pictures as translated after {steps} steps."},
    ).to_plotly_json()


def explorer() -> str:
    """Every view of recordings of GPUs that others published, as labkit.show.trace_explorer has them."""
    traces = {name: labkit.public_trace(key) for name, key in RECORDINGS.items()}
    figures = {}
    for (i, (name, trace)), (j, view) in itertools.product(enumerate(traces.items()), enumerate(SEEN)):
        figures[i, j] = as_dict(labkit.show.trace({name: trace}, view, **interval(trace, view)))
    views = [VIEWS[view][0] for view in SEEN]
    return chooser_html({"recording": list(traces), "figure": views}, figures, (0, SEEN.index("idle")))


def interval(trace: labkit.Trace, view: str) -> dict[str, float]:
    """The part of a recording that its timeline shows: two milliseconds in the middle."""
    if view != "timeline":
        return {}
    rank = next(iter(trace.ranks.values()))
    middle = (rank.start + rank.stop) / 2 - rank.recording.events["begin"].min()
    return {"begin_us": middle, "end_us": middle + 2000}


def queue() -> str:
    """The launch queue between host and GPU, SIMULATED."""
    figures = {}
    for (i, host), (j, kernel), (k, way) in itertools.product(*map(enumerate, (HOST_US, KERNEL_US, WAYS.values()))):
        figures[i, j, k] = as_dict(queue_figure(host, kernel, **way))
    controls = {
        "host, µs a launch": list(map(str, HOST_US)),
        "kernel, µs": list(map(str, KERNEL_US)),
        "launched on": list(WAYS),
    }
    return chooser_html(controls, figures, (HOST_US.index(10), KERNEL_US.index(8), 0))


def ladder() -> str:
    """The records of the speedrun."""
    return figure_html(as_dict(labkit.show.ladder(records())))


def as_dict(figure: go.Figure) -> dict[str, Any]:
    """A figure as it is in a notebook's file, with its arrays in Plotly's own form."""
    return json.loads(figure.to_json())


FIGURES = (training, explorer, queue, ladder)
