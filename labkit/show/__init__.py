"""Figures and widgets, in JupyterLab and in Colab."""

from __future__ import annotations

import sys

from labkit.show.batches import batch_figure, batch_widget
from labkit.show.breakdowns import gaps_figure, idle_figure, steps_figure, temporal_figure
from labkit.show.comparisons import comparison, comparison_figure
from labkit.show.deviations import deviation_figure, deviation_widget
from labkit.show.explorer import trace_explorer
from labkit.show.figures import (
    loss_curves,
    operator_bars,
    picture_rows,
    size_bars,
    time_bars,
    timing_strips,
    view,
)
from labkit.show.host import operators_figure, ranges_figure
from labkit.show.hosts import host_figure, host_widget
from labkit.show.kernels import kernel_kinds_figure, memory_figure, top_kernels_figure
from labkit.show.launching import concurrency_figure, delays_figure, launches_figure, trace_queue_figure
from labkit.show.learning import learning_figure, passes_figure
from labkit.show.recordings import stamped
from labkit.show.report import comparison_report
from labkit.show.roofline import roofline_figure
from labkit.show.scaling import scaling_figure, scaling_widget
from labkit.show.simulations import overlap_figure, overlap_widget, queue_figure, queue_widget
from labkit.show.timeline import timeline_figure
from labkit.show.tradeoff import tradeoff_figure
from labkit.show.verdict import summary_figure
from labkit.show.widgets import LiveLosses

__all__ = [
    "batch_figure",
    "batch_widget",
    "comparison",
    "comparison_figure",
    "comparison_report",
    "concurrency_figure",
    "delays_figure",
    "deviation_figure",
    "deviation_widget",
    "gaps_figure",
    "host_figure",
    "host_widget",
    "idle_figure",
    "kernel_kinds_figure",
    "launches_figure",
    "learning_figure",
    "LiveLosses",
    "loss_curves",
    "memory_figure",
    "operator_bars",
    "operators_figure",
    "overlap_figure",
    "overlap_widget",
    "passes_figure",
    "picture_rows",
    "queue_figure",
    "queue_widget",
    "ranges_figure",
    "roofline_figure",
    "scaling_figure",
    "scaling_widget",
    "size_bars",
    "stamped",
    "steps_figure",
    "summary_figure",
    "temporal_figure",
    "time_bars",
    "timeline_figure",
    "timing_strips",
    "top_kernels_figure",
    "trace_explorer",
    "trace_queue_figure",
    "tradeoff_figure",
    "view",
]

if "google.colab" in sys.modules:  # Colab shows widgets of others only after being asked to
    from google.colab import output

    output.enable_custom_widget_manager()
