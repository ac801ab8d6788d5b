"""The process that writes an entry's translator as a program: ``python -m labkit.speedrun.exporting FILE WEIGHTS``.

The program, ``program.pt2``, is a list of operators. The judge runs it with the weights that training has left, so
that no code of the entry runs when its time no longer counts.
"""

from __future__ import annotations

import sys

import torch

from labkit.errors import LabkitError
from labkit.speedrun import guard
from labkit.speedrun.entry import load
from labkit.training.export import export

if __name__ == "__main__":
    file, weights = sys.argv[1:]
    torch.set_num_threads(1)
    guard.start(file)
    try:
        network = load(file, "cpu").model.translator("AtoB")
        network.load_state_dict(torch.load(weights)[1])
        export(network, "program.pt2")
    except (LabkitError, RuntimeError) as error:
        sys.exit(f"labkit: {error}")
