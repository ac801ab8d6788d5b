"""Time whole steps of other algorithms in turn, by processor time on one core, for notebooks 07 and 08.

    python tools/time_steps.py full_size     # CycleGAN and one generator, 256 x 256 pixels: about ten minutes
    python tools/time_steps.py one_generator | lighter     # what tools/learn.py trains on the fruit: a minute

Writes data/quality/full_size.json, or STUDY_steps.json. By processor time, so that what else runs here counts less.
"""

import sys
import time

import torch
from learn import STUDIES

import labkit
from labkit.evidence import DATA
from labkit.measure.saved import save
from labkit.recipes import FRUIT

FULL_SIZE = {
    "CycleGAN": lambda: labkit.make_step(labkit.CycleGAN()),
    "CycleGAN without identity": lambda: labkit.make_step(labkit.CycleGAN(lambda_identity=0.0)),
    "one generator, both domains": lambda: labkit.make_step(labkit.DeviationGAN(consistency="deviation_both")),
    "one generator, A only": lambda: labkit.make_step(labkit.DeviationGAN()),
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    study = sys.argv[1]
    full = study == "full_size"
    makers, size, rounds = (FULL_SIZE, 256, 6) if full else (STUDIES[study][0], FRUIT.size, 30)
    batch = tuple(torch.rand(1, 3, size, size) * 2 - 1 for _ in range(2))
    table = labkit.compare(makers, batch, rounds=rounds, warmup=1 if full else 3, clock=time.process_time)
    table.attrs["stamp"]["clock"] = "processor time"
    print(save(table, DATA / "quality" / f"{study if full else f'{study}_steps'}.json"))
