"""Figures and widgets, in JupyterLab and in Colab."""

from __future__ import annotations

import sys

from labkit.show.figures import loss_curves, picture_rows, size_bars, view
from labkit.show.widgets import LiveLosses

__all__ = ["LiveLosses", "loss_curves", "picture_rows", "size_bars", "view"]

if "google.colab" in sys.modules:  # Colab shows widgets of others only after being asked to
    from google.colab import output

    output.enable_custom_widget_manager()
