"""Figures and widgets, in JupyterLab and in Colab."""

from __future__ import annotations

import sys

from labkit.show.figures import (
    loss_curves,
    operator_bars,
    picture_rows,
    size_bars,
    time_bars,
    timing_strips,
    view,
)
from labkit.show.simulations import overlap_figure, overlap_widget, queue_figure, queue_widget
from labkit.show.widgets import LiveLosses

__all__ = [
    "LiveLosses",
    "loss_curves",
    "operator_bars",
    "overlap_figure",
    "overlap_widget",
    "picture_rows",
    "queue_figure",
    "queue_widget",
    "size_bars",
    "time_bars",
    "timing_strips",
    "view",
]

if "google.colab" in sys.modules:  # Colab shows widgets of others only after being asked to
    from google.colab import output

    output.enable_custom_widget_manager()
