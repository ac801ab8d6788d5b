"""Time a training by itself, and two and three of them at once on this machine: what notebook 11 says of jobs.

    OMP_NUM_THREADS=1 python tools/jobs_at_once.py

Each job is `labkit train` on the fruit with a learning rate of its own, and nothing else should run meanwhile. It takes
ten minutes on two processor cores, and writes data/quality/jobs.json: a row for each round and number of jobs.
"""

import subprocess
import sys
import tempfile
import time

import pandas

import labkit
from labkit.course.shipped import DATA
from labkit.measure import save
from labkit.measure.quality import stamp_with

RATES, STEPS, ROUNDS = (2e-4, 5e-4, 1e-3), 250, 5


def seconds_of(jobs: int) -> float:
    """The seconds until the last of so many jobs that start at once has ended, including the start of Python."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "labkit", "train", "--data", "fruit", "--device", "cpu"]
                + ["--steps", str(STEPS), "--lr", str(rate), "--out", f"{folder}/{rate}"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for rate in RATES[:jobs]
        ]
        if any([process.wait() for process in processes]):
            sys.exit("a job failed: run the same labkit train by hand")
        return time.perf_counter() - begun


if __name__ == "__main__":
    rows = [
        {"round": number, "jobs": jobs, "seconds": seconds_of(jobs)}
        for number in range(ROUNDS)
        for jobs in (1, 2, 3)  # in turn: the machine's speed changes
    ]
    table = pandas.DataFrame(rows)
    table.attrs = {"stamp": stamp_with(labkit.fruit()), "steps": STEPS, "rates": list(RATES)}
    save(table, DATA / "quality" / "jobs.json")
    print(table.groupby("jobs")["seconds"].describe())
