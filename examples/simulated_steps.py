"""Whole training and inference steps of many networks, simulated on GPUs: the steps that others measured.

    python examples/simulated_steps.py

simulates each step of data/measured, which takes some minutes, and writes the results into its table, beside the
measured times. Run it after a change of the model. `labkit.simulate.measured` reads the table. A step of your own is a
function such as `inference` or `training` gives, with all of its tensors on the meta device.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pandas
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import labkit
from labkit import networks, simulate
from labkit.simulate.as_on_gpu import as_on_gpu
from labkit.simulate.measured_steps import TABLE
from labkit.simulate.operator_replay import SLOWEST_HOST

WORDS = 30522  # that BERT knows
ONE_AT_A_TIME = 3  # The V100's steps are of 2022: Adam updated each weight by itself, and 3 steps were timed together.


def simulated(row: Any) -> tuple[float, str]:
    """What the model says of a row of the table: milliseconds, and whether the "GPU" or the "host" decides.

    It is the host if the slowest host would make the step a tenth longer.
    """
    steps = ONE_AT_A_TIME if "pull/706" in row.source else 1
    if row.use == "step":
        operators = simulate.step_operators(labkit.CycleGAN(), batch_size=row.batch, size=row.size)
    else:
        run = inference(row) if row.use == "inference" else training(row, foreach=steps == 1)
        operators = simulate.program_operators(run) * steps
    played = partial(simulate.replay, operators, roofline=simulate.ROOFLINES[row.device], steps=1)
    hosts = (simulate.HOST_US, SLOWEST_HOST * simulate.HOST_US, 0.0)
    ours, slower, free = (played(us, graph=row.launch == "graph").timeline.wall for us in hosts)
    return round(ours / 1e3 / steps, 2), "host" if slower > 1.1 * free else "GPU"


def network(row: Any) -> tuple[nn.Module, Tensor, Tensor]:
    """A network of labkit or torchvision and its pictures, or a transformer and its words; and the right answers."""
    import torchvision

    if row.network.startswith("bert"):
        with torch.device("meta"):
            return bert(row.network), *torch.zeros(2, row.batch, row.size, dtype=torch.long)
    made = networks.make_generator if row.network.startswith("resnet_") else torchvision.models.get_model
    layout = torch.channels_last if row.layout == "channels_last" else torch.contiguous_format
    with torch.device("cpu" if row.network.startswith("regnet") else "meta"):  # RegNet computes its widths with tensors
        model = made(row.network).to("meta", memory_format=layout)
    picture = torch.empty(row.batch, 3, row.size, row.size, memory_format=layout, device="meta")
    return model, picture, torch.empty(row.batch, 1000, device="meta")


def bert(name: str) -> nn.Module:
    """Words (B, T) to numbers for each: WORDS, or on SQuAD whether an answer begins or ends there."""
    layers, width = (24, 1024) if "large" in name else (12, 768)
    layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, activation="gelu", batch_first=True)
    answers = nn.Linear(width, 2 if "squad" in name else WORDS)
    return nn.Sequential(nn.Embedding(WORDS, width), nn.TransformerEncoder(layer, layers), answers)


def inference(row: Any) -> Callable[[], object]:
    """A forward pass without gradients."""
    model, given, _ = network(row)
    if row.dtype == "float16":
        model, given = model.half(), given.half() if given.is_floating_point() else given

    def run() -> None:
        with torch.no_grad(), torch.autocast("cuda", torch.float16, enabled=row.dtype == "autocast"):
            model.eval()(given)

    return run


def training(row: Any, foreach: bool) -> Callable[[], object]:
    """A training step, after a first one. In 2022 `zero_grad` wrote zeros, and not in a graph."""
    model, given, target = network(row)
    made: Any = partial(torch.optim.SGD, momentum=0.9) if "SGD" in row.use else torch.optim.Adam
    optimizer = made(model.parameters(), foreach=foreach)

    def step() -> None:
        optimizer.zero_grad(set_to_none=foreach)
        if row.launch == "graph":  # the graph makes the gradients again
            optimizer.zero_grad(set_to_none=True)
        for _ in range(16 if row.use == "16 passes" else 1):
            with torch.autocast("cuda", torch.float16, enabled=row.dtype == "autocast"):
                answers = model(given)
                loss = cross_entropy(answers.movedim(-1, 1), target)
            loss.backward()
        optimizer.step()

    with as_on_gpu():
        step()  # makes the optimiser's state
    return step


if __name__ == "__main__":
    table = pandas.read_csv(TABLE)
    table[["SIMULATED_ms", "decides"]] = list(map(simulated, table.itertuples()))
    table.to_csv(TABLE, index=False)
