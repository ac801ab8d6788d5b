"""Draw a sheet of examination questions with numbers of their own, and its key: no answer is public.

    python -m tools.examination --seed 7        # or: make examination SEED=7

The sheet goes to out/examination/7.md, the key to 7-key.md. The numbers come from the simulator and from the course's
own functions, so that each seed is another sheet of the same six kinds. Keep the seed as secret as the key.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path
from random import Random

from labcourse.solutions import best_interval
from labkit.measure import amdahl
from labkit.simulate.clusters import ring_us
from labtrace.replay import Launch, play

FOLDER = Path(__file__).resolve().parents[1] / "out" / "examination"
Question = tuple[str, str]  # the text, and its key


def three_totals(random: Random) -> Question:
    """Sum, union and wall time of kernels on two streams, and why the GPU is idle."""
    launches = [Launch("", random.randint(3, 9), random.randint(20, 45), stream=i % 2) for i in range(3)]
    launches += [Launch("", random.randint(60, 90), random.randint(10, 30), stream=i % 2) for i in range(3)]
    run = play(launches, gap_us=0)
    begin, end = run.kernel_start, run.kernel_end
    rows = zip(run.host_end, begin, end, run.stream, strict=True)
    table = [f"| {i} | {a:.0f} | {b:.0f} | {c:.0f} | {s} |" for i, (a, b, c, s) in enumerate(rows, start=1)]
    wall = end.max() - begin.min()
    text = "Kernels of two streams, in microseconds. State the sum of their durations, the time for which at least one "
    text += "of them runs, and the wall time from the first begin to the last end. Who is the GPU waiting for when it "
    text += "is idle?\n\n| kernel | launched | begin | end | stream |\n|---|---|---|---|---|\n" + "\n".join(table)
    key = f"Sum {run.kernel_sum:.0f} us, busy {run.busy:.0f} us, wall {wall:.0f} us, idle {wall - run.busy:.0f} us. "
    return text, key + "Each kernel after a gap of the whole GPU begins as it is launched: the GPU waits for the host."


def host_or_gpu(random: Random) -> Question:
    """A step's time from its launches, and what a graph brings."""
    launches, host_us = random.randrange(2000, 6000, 100), random.randrange(8, 30)
    kernel_us = host_us * random.choice((0.4, 0.5, 0.7, 1.5, 2))
    run = play([Launch("", host_us, kernel_us)] * launches, gap_us=0)
    text = f"A step launches {launches:,} kernels on one stream. The host needs {host_us} us for each launch, and each "
    text += f"kernel takes {kernel_us:g} us. How long does the step take, for which share of it is the GPU idle, and "
    text += "how many times faster can a CUDA graph make it at most? (Leave out pauses between kernels.)"
    key = f"{run.wall / 1e3:.1f} ms; idle for {run.idle_share:.0%}; at most {run.wall / run.busy:.2f} times faster. "
    bound = "host" if kernel_us < host_us else "GPU"
    return text, f"{key}It is bound by the {bound}: {launches:,} x {max(host_us, kernel_us):g} us."


def by_the_clock(random: Random) -> Question:
    """What a recording promises, and what the clock leaves of it."""
    busy = random.randrange(40, 70)
    clock, recorded = round(busy * random.uniform(1.2, 1.6)), round(busy * random.uniform(1.8, 2.4))
    text = f"In a recording a step takes {recorded} ms, and its kernels {busy} ms, one after another. Without the "
    text += f"profiler the step takes {clock} ms. For which share of the time is the GPU idle in real training, and "
    text += "how many times faster does the step get at most, if launches cost nothing? Which wrong answer does the "
    text += "recording suggest, and why?"
    key = f"Idle for {1 - busy / clock:.0%}, at most {clock / busy:.2f} times faster. The recording suggests "
    key += f"{1 - busy / recorded:.0%} and {recorded / busy:.2f}: the profiler slows the host, and not the kernels."
    return text, key


def two_streams(random: Random) -> Question:
    """Amdahl's bound for an overlap, and what happens to the sum of durations."""
    share, fills = random.randrange(24, 64, 4) / 100, random.choice((0.6, 0.7, 0.8, 0.9))
    one, two = (play([Launch("", 0, 10, i % n, share=fills) for i in range(12)], gap_us=0) for n in (1, 2))
    text = f"Of a step, {share:.0%} are two independent halves, which somebody runs on two streams. (a) How many times "
    text += f"faster does the step get at most? (b) Now let each kernel of these halves fill {fills:.0%} of the GPU, "
    text += "and slow the other one down in proportion. How do the sum of their durations and their wall time change? "
    text += "(c) The GPU waits for the host all the time: what does the second stream bring?"
    key = f"(a) {amdahl(share, 2):.2f}. (b) The sum is {two.kernel_sum / one.kernel_sum:.2f} times as large, the time "
    return text, key + f"{two.wall / one.wall:.2f} times as long. (c) Nothing: there are as many launches as before."


def buckets(random: Random) -> Question:
    """When the gradients leave, and how long a ring takes."""
    sizes, limit = [random.randrange(2, 12) for _ in range(8)], random.choice((12, 15, 18))
    ranks, latency_us, rate = random.choice((4, 8, 16)), random.choice((5, 10, 20)), random.choice((10, 25, 50))
    early = waiting = 0
    for size in sizes:
        waiting += size
        if waiting >= limit:
            early, waiting = early + waiting, 0
    text = f"In the order of the backward pass, gradients of {', '.join(map(str, sizes))} MB become ready. A bucket is "
    text += f"sent as soon as it has {limit} MB or more, and the rest at the end. (a) How many megabytes are on their "
    text += "way when the backward pass ends (those that its last gradient completes included)? (b) How long does an "
    text += f"all-reduce of all {sum(sizes)} MB in a ring of {ranks} ranks take, with {latency_us} us a message and "
    text += f"{rate} GB/s? (c) Which of the two numbers depends on the size of the pictures?"
    ring_ms = ring_us(sum(sizes) * 1e6, ranks, latency_us, rate * 1e9) / 1e3
    key = f"(a) {early} of {sum(sizes)} MB. (b) {ring_ms:.2f} ms. "
    return text, key + "(c) Neither: gradients are as large as the weights."


def checkpoints(random: Random) -> Question:
    """How often to save."""
    save_s, days, machines = random.randrange(5, 60, 5), random.choice((10, 20, 30)), random.choice((8, 32, 64))
    between_s = days * 86400 / machines
    interval = best_interval(save_s, between_s)
    text = f"A checkpoint takes {save_s} s. Each of {machines} machines fails once in {days} days, and a failure stops "
    text += "all of them. How often should one save, and which share of the time is lost then? What changes with four "
    text += "times as many machines?"
    lost = save_s / interval + interval / (2 * between_s)
    key = f"Every {interval / 60:.1f} minutes; {lost:.1%} is lost. With four times as many, half the interval, and "
    return text, key + "twice the loss."


QUESTIONS = (three_totals, host_or_gpu, by_the_clock, two_streams, buckets, checkpoints)


def draw(seed: int) -> list[Question]:
    """The questions of a sheet, each with its key."""
    random = Random(seed)
    return [question(random) for question in QUESTIONS]


def page(title: str, parts: Iterable[str]) -> str:
    """A page in Markdown, with its parts numbered."""
    return "\n\n".join([f"# {title}", *(f"**{number}.** {part}" for number, part in enumerate(parts, start=1))]) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, required=True, help="a number that nobody else knows")
    seed = parser.parse_args().seed
    texts, keys = zip(*draw(seed), strict=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{seed}.md").write_text(page("Examination", texts), encoding="utf-8")
    (FOLDER / f"{seed}-key.md").write_text(page(f"Key of sheet {seed}", keys), encoding="utf-8")
    print(f"The sheet: {FOLDER / f'{seed}.md'}\nIts key:   {FOLDER / f'{seed}-key.md'}")
