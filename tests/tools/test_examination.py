"""An examination sheet is drawn by its seed, and its key is the answer to the printed numbers."""

import re
from random import Random

import numpy as np
import pytest

from tools import examination

SEEDS = range(20)


def numbers(text):
    return [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", text)]


def test_a_seed_draws_the_same_sheet_again_and_another_seed_another_one():
    assert examination.draw(7) == examination.draw(7)
    first, second = examination.draw(1), examination.draw(2)
    assert len(first) == 6 and not {text for text, _ in first} & {text for text, _ in second}


@pytest.mark.parametrize("seed", SEEDS)
def test_the_key_of_the_totals_is_right_for_the_table_as_printed(seed):
    text, key = examination.three_totals(Random(seed))
    rows = np.array([[int(cell) for cell in row.split("|")[1:-1]] for row in text.splitlines()[4:]])
    _, launched, begin, end, _ = rows.T
    covered = np.zeros(1000, dtype=bool)
    for first, last in zip(begin, end, strict=True):
        covered[first:last] = True
    wall = end.max() - begin.min()
    total, busy = (end - begin).sum(), covered.sum()
    assert numbers(key) == [total, busy, wall, wall - busy]
    assert total > busy and wall > busy, "without overlap or idle time there is nothing to ask"
    assert all(launched[i] == begin[i] for i in range(len(begin)) if begin[i] and not covered[begin[i] - 1])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_step_takes_as_long_as_the_slower_of_host_and_gpu(seed):
    text, key = examination.host_or_gpu(Random(seed))
    launches, host_us, kernel_us = numbers(text)
    milliseconds, idle, gain, *_ = numbers(key)
    step, busy = launches * max(host_us, kernel_us), launches * kernel_us
    assert milliseconds == pytest.approx(step / 1e3, abs=0.11)
    assert idle == pytest.approx(100 * (1 - busy / step), abs=0.6) and gain == pytest.approx(step / busy, abs=0.01)


@pytest.mark.parametrize("seed", SEEDS)
def test_buckets_leave_when_they_are_full(seed):
    text, key = examination.buckets(Random(seed))
    *sizes, limit = numbers(text)[:9]
    rest = list(sizes)
    while rest and not sum(rest) < limit:
        rest = rest[next(i for i in range(1, len(rest) + 1) if sum(rest[:i]) >= limit) :]
    assert numbers(key)[:2] == [sum(sizes) - sum(rest), sum(sizes)]
