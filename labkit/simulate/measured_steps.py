"""Steps that others measured on GPUs, beside what the model says of them: how far to trust SIMULATED.

data/measured has the steps and their sources. None of them was used to fit the model. After a change of the model,
`python -m labkit.simulate.measured_steps` writes its results beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import torch
from torch.nn.functional import cross_entropy

from labkit.errors import LabkitError
from labkit.models.cyclegan import CycleGAN
from labkit.networks.generators import make_generator
from labkit.simulate.as_on_gpu import AsOnGPU
from labkit.simulate.cost_model import ROOFLINES
from labkit.simulate.meta_device import program_operators, step_operators
from labkit.simulate.operator_replay import HOST_US, OF_MEASURED, replay
from labkit.stamp import stamp

TABLE = Path(__file__).parents[2] / "data" / "measured" / "steps.csv"  # in a clone; an installed package has none
ONE_AT_A_TIME = 3  # The V100's steps are of 2022: Adam updated each weight by itself, and 3 steps were timed together.


def error_range() -> tuple[float, float]:
    """The range of SIMULATED over measured times, from the 10th to the 90th percentile of `measured`, rounded.

    For a step on an A100 or a V100 whose host is not known. A conclusion that rests on a smaller ratio is none.
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
        | source | where it was published |

    Raises:
        LabkitError: data/measured is not here.
    """
    if not TABLE.exists():
        raise LabkitError(f"{TABLE} is not here: use a clone of labkit.")
    table = pandas.read_csv(TABLE)
    if now:
        table["SIMULATED_ms"] = [round(_milliseconds(row), 2) for row in table.itertuples()]
    table["ratio"] = table["SIMULATED_ms"] / table["measured_ms"]
    table = table[["what", "device", "measured_ms", "SIMULATED_ms", "ratio", "source"]]
    table.attrs["stamp"] = stamp() | {"SIMULATED": True, "device": "SIMULATED A100 and V100", "host_us": HOST_US}
    return table


def _milliseconds(row: Any, host_us: float = HOST_US) -> float:
    network, batch, size, dtype, graph = row.network, row.batch, row.size, row.dtype, row.launch == "graph"
    steps = 1
    if row.use == "step":
        operators = step_operators(CycleGAN(), batch_size=batch, size=size)
    elif row.use == "inference":
        operators = program_operators(_inference(network, batch, size, dtype))
    else:
        steps = ONE_AT_A_TIME if row.device == "V100" else 1
        operators = program_operators(_training(network, batch, size, foreach=steps == 1, graph=graph)) * steps
    played = replay(operators, host_us, ROOFLINES[row.device], graph=graph, steps=1)
    return played.timeline.wall / 1e3 / steps


def _inference(network: str, batch: int, size: int, dtype: str) -> Callable[[], object]:
    """The forward pass of a network of labkit or torchvision."""
    import torchvision

    with torch.device("meta"):
        model = make_generator(network) if network.startswith("resnet_") else torchvision.models.get_model(network)
        picture = torch.empty(batch, 3, size, size, dtype=getattr(torch, dtype))
    model = model.to("meta", picture.dtype).eval()
    return torch.no_grad()(lambda: model(picture))


def _training(network: str, batch: int, size: int, foreach: bool, graph: bool) -> Callable[[], object]:
    """A training step of a network of torchvision, with Adam. In 2022 `zero_grad` wrote zeros; not in a graph."""
    import torchvision

    with torch.device("meta"):
        model = torchvision.models.get_model(network)
        picture, target = torch.empty(batch, 3, size, size), torch.empty(batch, 1000)
    optimizer = torch.optim.Adam(model.parameters(), foreach=foreach)

    def step() -> None:
        optimizer.zero_grad(set_to_none=foreach)
        if graph:  # the graph makes the gradients anew
            optimizer.zero_grad(set_to_none=True)
        cross_entropy(model(picture), target).backward()
        optimizer.step()

    with AsOnGPU():
        step()  # makes Adam's moments
    return step


if __name__ == "__main__":
    steps = pandas.read_csv(TABLE)
    steps["SIMULATED_ms"] = measured(now=True)["SIMULATED_ms"]
    steps.to_csv(TABLE, index=False)
