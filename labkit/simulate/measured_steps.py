"""Steps that others measured on GPUs, beside what the model says of them: how far to trust SIMULATED.

data/measured has the steps and their sources, and says which were seen while the model was built. After a change of the
model, `python -m labkit.simulate.measured_steps` writes its results beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from labkit.errors import LabkitError
from labkit.models.cyclegan import CycleGAN
from labkit.networks.generators import make_generator
from labkit.simulate.as_on_gpu import as_on_gpu
from labkit.simulate.cost_model import ROOFLINES
from labkit.simulate.meta_device import program_operators, step_operators
from labkit.simulate.operator_replay import HOST_US, OF_MEASURED, replay
from labkit.stamp import stamp

TABLE = Path(__file__).parents[2] / "data" / "measured" / "steps.csv"  # in a clone; an installed package has none
ONE_AT_A_TIME = 3  # The V100's steps are of 2022: Adam updated each weight by itself, and 3 steps were timed together.


def error_range() -> tuple[float, float]:
    """The range of SIMULATED over measured times, from the 10th to the 90th percentile of `measured`, to a tenth.

    For a network of convolutions on an A100 or a V100, in float32 or with 16-bit weights, whose host is not known. A
    conclusion that rests on a smaller ratio is none.
    """
    return OF_MEASURED


def error_text() -> str:
    """`error_range` in words, for figures."""
    return "times like these were {:g} to {:g} of those that others measured".format(*error_range())


def measured(now: bool = False) -> pandas.DataFrame:
    """Steps that others measured, and what the model says of them.

    Args:
        now: whether the steps are simulated now, which needs torchvision and half a minute, and not read from the file.

    Returns:
        | column | meaning |
        |---|---|
        | what | the step |
        | device | the GPU |
        | measured_ms, SIMULATED_ms | a step, in milliseconds |
        | ratio | SIMULATED over measured: 1 is right |
        | kind | "float32", "16-bit weights", "autocast, inference", or "autocast, training"; with "attention", if so |
        | decides | "GPU", or "host" if one half as fast as ours would add a tenth, by the model |
        | seen | "before" the model was finished, "after" it, or "fitted": the host and four rates are from it |
        | source | where it was published |

    Raises:
        LabkitError: data/measured is not here.
    """
    if not TABLE.exists():
        raise LabkitError(f"{TABLE} is not here: use a clone of labkit.")
    table = pandas.read_csv(TABLE)
    if now:
        table[["SIMULATED_ms", "decides"]] = pandas.DataFrame(map(_simulated, table.itertuples()))
    table["ratio"] = table["SIMULATED_ms"] / table["measured_ms"]
    table = table[["what", "device", "measured_ms", "SIMULATED_ms", "ratio", "kind", "decides", "seen", "source"]]
    table.attrs["stamp"] = stamp() | {"SIMULATED": True, "device": "SIMULATED", "host_us": HOST_US}
    return table


def _simulated(row: Any) -> tuple[float, str]:
    ours, slower, free = _milliseconds(row, HOST_US, 2 * HOST_US, 0.0)
    return round(ours, 2), "host" if slower > 1.1 * free else "GPU"


def _milliseconds(row: Any, *hosts: float) -> list[float]:
    """What the model says of a row of the table, on hosts of so many microseconds a launch."""
    steps = ONE_AT_A_TIME if "pull/706" in row.source else 1
    if row.use == "step":
        operators = step_operators(CycleGAN(), batch_size=row.batch, size=row.size)
    else:
        run = _inference(row) if row.use == "inference" else _training(row, foreach=steps == 1)
        operators = program_operators(run) * steps
    graph, device = row.launch == "graph", ROOFLINES[row.device]
    return [replay(operators, us, device, graph=graph, steps=1).timeline.wall / 1e3 / steps for us in hosts]


def _network(row: Any) -> tuple[nn.Module, Tensor]:
    """A network of labkit or torchvision, and a batch of pictures for it."""
    import torchvision

    made = make_generator if row.network.startswith("resnet_") else torchvision.models.get_model
    layout = torch.channels_last if row.layout == "channels_last" else torch.contiguous_format
    with torch.device("meta"):
        model = made(row.network).to(memory_format=layout)
        picture = torch.empty(row.batch, 3, row.size, row.size, memory_format=layout)
    return model, picture


def _inference(row: Any) -> Callable[[], object]:
    model, picture = _network(row)
    if row.dtype == "float16":
        model, picture = model.half(), picture.half()

    def run() -> None:
        with torch.no_grad(), torch.autocast("cuda", torch.float16, enabled=row.dtype == "autocast"):
            model.eval()(picture)

    return run


def _training(row: Any, foreach: bool) -> Callable[[], object]:
    """A training step, after a first one. In 2022 `zero_grad` wrote zeros, and not in a graph."""
    model, picture = _network(row)
    target = torch.empty(row.batch, 1000, device="meta")
    made: Any = partial(torch.optim.SGD, momentum=0.9) if "SGD" in row.use else torch.optim.Adam
    optimizer = made(model.parameters(), foreach=foreach)

    def step() -> None:
        optimizer.zero_grad(set_to_none=foreach)
        if row.launch == "graph":  # the graph makes the gradients anew
            optimizer.zero_grad(set_to_none=True)
        for _ in range(16 if row.use == "16 passes" else 1):
            with torch.autocast("cuda", torch.float16, enabled=row.dtype == "autocast"):
                loss = cross_entropy(model(picture), target)
            loss.backward()
        optimizer.step()

    with as_on_gpu():
        step()  # makes the optimiser's state
    return step


if __name__ == "__main__":
    steps = pandas.read_csv(TABLE)
    steps[["SIMULATED_ms", "decides"]] = measured(now=True)[["SIMULATED_ms", "decides"]]
    steps.to_csv(TABLE, index=False)
