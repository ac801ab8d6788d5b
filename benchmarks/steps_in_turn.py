"""Steps in turn: ``python steps_in_turn.py resnet_9blocks 16 64 1 rounds stack stack ...`` prints JSON.

As many threads as OMP_NUM_THREADS says. On one, times are CPU time of this process, which other programs lengthen less
than the time on the clock. The stack "auto" is the one that `labkit.autotune` chooses, and "reference" is the public
reference's own step, from its clone that REFERENCE names.
"""

import json
import os
import sys
import time

import torch
import torch._inductor.config
from test_reference import reference_model
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import labkit
from labkit.measure import alternate, ratio
from labkit.measure.timing import spread
from labkit.variants import cpp, winograd

SHAPES = ((36, 256, 256, 256), (36, 512, 128, 128), (36, 64, 128, 128), (36, 16, 128, 128), (36, 100, 96, 72))


def rates(clock) -> dict[str, int]:
    """GFLOP/s of products of matrices, PyTorch's and those of `winograd`, and of a direct convolution."""
    x, weight = torch.rand(1, 128, 64, 64).contiguous(memory_format=torch.channels_last), torch.rand(128, 128, 3, 3)
    works = {"direct convolution": (lambda: F.conv2d(x, weight), 2 * 62 * 62 * 128 * 128 * 9)}
    for count, m, k, n in SHAPES:
        left, right, flops = torch.rand(count, m, k), torch.rand(count, k, n), 2 * count * m * k * n
        turned = left.mT.contiguous().mT
        for layout, one in {"A": left, "A^T": turned}.items():
            of = f"{layout} ({count}, {m}, {k}) x {n}"
            works[f"bmm, {of}"] = (lambda one=one, right=right: torch.bmm(one, right), flops)
            works[f"winograd's, {of}"] = (lambda one=one, right=right: cpp.products(one, right), flops)
    took = alternate({name: work for name, (work, _) in works.items()}, rounds=20, clock=clock)
    return {name: round(flops / min(took[name]) / 1e9) for name, (_, flops) in works.items()}


def main() -> None:
    generator, (ngf, size, batch, rounds), stacks = sys.argv[1], map(int, sys.argv[2:6]), sys.argv[6:]
    threads = int(os.environ["OMP_NUM_THREADS"])
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    if torch.backends.cpu.get_cpu_capability() == "AVX2":
        torch._inductor.config.cpp.simdlen = 256  # compiled kernels, too, with AVX2 and no more
    elif "MKL_ENABLE_INSTRUCTIONS" in os.environ:
        cpp.own_products = winograd.own_products = lambda: True  # this Intel stands for an AMD
    real = [torch.rand(batch, 3, size, size) * 2 - 1 for _ in range(2)]

    def model():
        torch.manual_seed(0)
        return labkit.CycleGAN(generator=generator, ngf=ngf, ndf=ngf)

    chosen = labkit.autotune(model, real, rounds=max(6, rounds))[0] if "auto" in stacks else []

    def step(stack):
        if stack == "reference":
            theirs, _ = reference_model(netG=generator, ngf=ngf, ndf=ngf, pool_size=50, lambda_B=10.0)
            names = dict(A_paths=[], B_paths=[])
            return lambda a, b: (theirs.set_input({"A": a, "B": b, **names}), theirs.optimize_parameters())
        return labkit.make_step(model(), *(chosen if stack == "auto" else filter(None, stack.split(","))))

    steps = {"baseline": step(""), "baseline again": step(""), **{stack: step(stack) for stack in stacks}}
    with FlopCounterMode(display=False) as counter:
        steps["baseline"](*real)
    turns = {name: lambda one=one: one(*real) for name, one in steps.items()}
    seconds = alternate(turns, rounds, warmup=2, clock=clock)
    base = seconds.pop("baseline")
    result = dict(generator=generator, ngf=ngf, size=size, batch=batch, threads=threads)
    result |= dict(seconds=round(min(base), 3), spread=round(spread(base), 3), auto=chosen)
    result["gflops"] = {"step": round(counter.get_total_flops() / min(base) / 1e9), **rates(clock)}
    result["times_faster"] = {name: round(1 / ratio(its, base), 3) for name, its in seconds.items()}
    print(json.dumps(result))


main()
