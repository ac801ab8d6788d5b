"""labkit: build CycleGAN, see where the time of its training goes, and make it faster.

The public names are loaded when they are first used, so that what needs neither plotly, HTA nor jupyter works on
a machine without them.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "LabkitError": "labkit.errors",
    "fruit": "labkit.data.fruit",
    "folders": "labkit.data.folders",
    "download": "labkit.data.public",
    "batches": "labkit.data.loading",
    "to_float": "labkit.data.loading",
    "to_uint8": "labkit.data.loading",
    "CycleGAN": "labkit.models.cyclegan",
    "DeviationGAN": "labkit.models.deviation",
    "make_step": "labkit.steps.making",
    "speedups": "labkit.steps.making",
    "fit": "labkit.training",
    "record": "labkit.measure.recording",
    "compare": "labkit.measure.comparing",
    "choose": "labkit.measure.choosing",
    "Trace": "labkit.traces.tables",
    "TraceError": "labkit.traces.reading",
    "gpu_trace": "labkit.evidence",
    "gpu_results": "labkit.evidence",
    "study": "labkit.studies",
    "study_pictures": "labkit.studies",
    "deviation_models": "labkit.studies",
    "linear_schedule": "labkit.training",
    "load_model": "labkit.checkpoints",
    "load_generator": "labkit.checkpoints",
    "translate": "labkit.translating",
    "quality": "labkit.evaluation",
    "mean_difference": "labkit.evaluation",
    "learning_curves": "labkit.measure.learning",
    "time_to_quality": "labkit.measure.learning",
    "best_within": "labkit.measure.learning",
}
_MODULES = ("check", "replay", "show")

__all__ = [*_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"labkit.{name}")
    raise AttributeError(f"module 'labkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
