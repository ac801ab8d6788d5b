"""Bars that show progress, on standard error."""

import builtins
import sys
from typing import Any

from tqdm.auto import tqdm

INTERVAL = 30.0  # seconds between two lines of a bar in a log file


def bar(*arguments: Any, **options: Any) -> tqdm:
    """tqdm's bar, drawn often in a terminal or a notebook, and every 30 seconds where it goes into a file."""
    seconds = 0.1 if sys.stderr.isatty() or hasattr(builtins, "__IPYTHON__") else INTERVAL
    made = tqdm(*arguments, mininterval=seconds, maxinterval=seconds, dynamic_ncols=True, **options)
    if hasattr(made, "container"):  # in a notebook: text that leaves the bar too little room goes into a second line
        made.container.children[1].layout.flex = "1 0 80px"
    return made
