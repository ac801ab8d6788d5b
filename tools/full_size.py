"""Time a step at full size, CycleGAN against one generator, and write it to data/quality/full_size.json.

    python tools/full_size.py

Pictures of 256 x 256, batch 1, one processor core: about ten minutes. By processor time, so that what else runs on the
machine counts less.
"""

import time

import torch

import labkit
from labkit.course.shipped import DATA
from labkit.measure import save

MAKERS = {
    "CycleGAN": lambda: labkit.make_step(labkit.CycleGAN()),
    "CycleGAN without identity": lambda: labkit.make_step(labkit.CycleGAN(lambda_identity=0.0)),
    "one generator, both domains": lambda: labkit.make_step(labkit.DeviationGAN(consistency="deviation_both")),
    "one generator, A only": lambda: labkit.make_step(labkit.DeviationGAN()),
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    batch = tuple(torch.rand(1, 3, 256, 256) * 2 - 1 for _ in range(2))
    table = labkit.compare(MAKERS, batch, rounds=6, warmup=1, clock=time.process_time)
    table.attrs["stamp"]["clock"] = "processor time"
    print(save(table, DATA / "quality" / "full_size.json"))
