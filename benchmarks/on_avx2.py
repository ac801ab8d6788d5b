"""Steps in turn on one thread: ``python on_avx2.py resnet_9blocks 16 64 1 rounds stack stack ...`` prints JSON.

The stack "auto" is the one that `labkit.autotune` chooses. Times are CPU time of this process, which other programs
lengthen less than the time on the clock.
"""

import json
import sys
import time

import torch
import torch._inductor.config
from torch.utils.flop_counter import FlopCounterMode

import labkit
from labkit.measure import alternate, ratio
from labkit.measure.timing import spread


def gemm_rate() -> float:
    """FLOP/s of a large matrix product: the processor's peak as far as a program reaches it."""
    a, b = torch.rand(2, 1024, 1024)
    seconds = alternate({"gemm": lambda: a @ b}, rounds=20, clock=time.process_time)["gemm"]
    return 2 * 1024**3 / min(seconds)


def main() -> None:
    generator, (ngf, size, batch, rounds), stacks = sys.argv[1], map(int, sys.argv[2:6]), sys.argv[6:]
    torch.set_num_threads(1)
    if torch.backends.cpu.get_cpu_capability() == "AVX2":
        torch._inductor.config.cpp.simdlen = 256  # compiled kernels, too, with AVX2 and no more
    real = [torch.rand(batch, 3, size, size) * 2 - 1 for _ in range(2)]

    def model():
        torch.manual_seed(0)
        return labkit.CycleGAN(generator=generator, ngf=ngf, ndf=ngf)

    chosen = labkit.autotune(model, real, rounds=max(6, rounds))[0] if "auto" in stacks else []

    def step(*names):
        return labkit.make_step(model(), *(chosen if names == ("auto",) else names))

    steps = {"baseline": step(), "baseline again": step(), **{stack: step(*stack.split(",")) for stack in stacks}}
    with FlopCounterMode(display=False) as counter:
        steps["baseline"](*real)
    turns = {name: lambda one=one: one(*real) for name, one in steps.items()}
    seconds = alternate(turns, rounds, warmup=2, clock=time.process_time)
    base = seconds.pop("baseline")
    faster = {name: round(1 / ratio(its, base), 3) for name, its in seconds.items()}
    peak = gemm_rate()
    share = {
        name: round(counter.get_total_flops() / min(its) / peak, 3)
        for name, its in {"baseline": base, **seconds}.items()
    }
    case = dict(
        generator=generator, ngf=ngf, size=size, batch=batch, seconds=round(min(base), 3), spread=round(spread(base), 3)
    )
    told = {"times_faster": faster, "auto": chosen, "share_of_gemm": share, "gemm_gflops": round(peak / 1e9, 1)}
    print(json.dumps({**case, **told}))


main()
