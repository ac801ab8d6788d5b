"""Steps that others measured on GPUs, beside what the model says of them: how far to trust SIMULATED.

data/measured has the steps and their sources, and says which were seen while the model was built. After a change of the
model, `python examples/simulated_steps.py` writes its results beside them.
"""

from __future__ import annotations

from pathlib import Path

import pandas

from labkit.errors import LabkitError
from labkit.simulate.operator_replay import HOST_US, OF_MEASURED
from labkit.stamp import stamp

TABLE = Path(__file__).parents[2] / "data" / "measured" / "steps.csv"  # in a clone; an installed package has none


def error_range() -> tuple[float, float]:
    """The range of SIMULATED over measured times, from the 10th to the 90th percentile of `measured`, to a tenth.

    For a network of convolutions on an A100 or a V100, in float32 or with 16-bit weights, whose host is not known. A
    conclusion that rests on a smaller ratio is none.
    """
    return OF_MEASURED


def error_text() -> str:
    """`error_range` in words, for figures."""
    return "times like these were {:g} to {:g} of those that others measured".format(*error_range())


def measured() -> pandas.DataFrame:
    """Steps that others measured, and what the model says of them.

    Returns:
        | column | meaning |
        |---|---|
        | what | the step |
        | device | the GPU |
        | measured_ms, SIMULATED_ms | a step, in milliseconds |
        | ratio | SIMULATED over measured: 1 is right |
        | kind | of work, as "autocast, dense convolutions": see `kind_of_work` in labkit/simulate/operator_replay.py |
        | decides | "GPU", or "host" if one three times as slow as ours would add a tenth, by the model |
        | seen | "before" the model was finished, "after" it, "half" (something was chosen by it), or "fitted" |
        | source | where it was published |

    Raises:
        LabkitError: data/measured is not here.
    """
    if not TABLE.exists():
        raise LabkitError(f"{TABLE} is not here: use a clone of labkit.")
    table = pandas.read_csv(TABLE)
    table["ratio"] = table["SIMULATED_ms"] / table["measured_ms"]
    table = table[["what", "device", "measured_ms", "SIMULATED_ms", "ratio", "kind", "decides", "seen", "source"]]
    table.attrs["stamp"] = stamp() | {"SIMULATED": True, "device": "SIMULATED", "host_us": HOST_US}
    return table
