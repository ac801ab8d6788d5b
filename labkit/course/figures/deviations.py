"""The effect of the deviation loss: translations by models that were trained with different weights of it."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import ipywidgets
import plotly.graph_objects as go
from torch import Tensor

from labkit.data.batches import to_float
from labkit.model import Model, run_network
from labkit.show.training import picture_rows
from labkit.show.widgets import controlled


def deviation_figure(models: Mapping[float, Model], apples: Tensor, oranges: Tensor, weight: float) -> go.Figure:
    """Translations of apples, and of oranges, by the translator that was trained with this weight of the deviation.

    Args:
        models: from `labkit.deviation_models`.
        apples, oranges: test pictures, ``uint8`` (N, 3, H, W), the same scenes with either fruit.
        weight: of the deviation, one of the keys of `models`.
    """
    translator = models[weight].translator("AtoB")
    from_apples, from_oranges = (run_network(translator, to_float(pictures)) for pictures in (apples, oranges))
    rows = {"apples": apples, "translated": from_apples, "oranges": oranges, "oranges translated": from_oranges}
    moved = float((from_apples - to_float(apples)).abs().mean() / 2)
    text = (
        f"Apples, and their translations by the translator trained with lambda_deviation {weight:g}; oranges, and "
        f"their translations. On average it changes apples by {moved:.1%} of the range from black to white."
    )
    return picture_rows(rows, f"lambda_deviation = {weight:g}: apples change by {moved:.1%} of the range", text)


def deviation_widget(models: Mapping[float, Model], apples: Tensor, oranges: Tensor) -> ipywidgets.VBox:
    """`deviation_figure`, with a choice of the weight."""
    weights = sorted(models)
    slider = ipywidgets.SelectionSlider(
        options=[(f"{weight:g}", weight) for weight in weights],
        value=weights[len(weights) // 2],
        description="lambda_deviation",
        style={"description_width": "130px"},
    )
    return controlled(functools.partial(deviation_figure, models, apples, oranges), {"weight": slider})
