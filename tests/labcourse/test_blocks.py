"""Kernels on the lessons' stand-in for Triton: the same results, and no use of memory goes unseen."""

import sys

import pytest
import torch

from labcourse import blocks as tl
from labcourse.blocks import OutOfBounds, in_triton, launch


def add_up(x, sums, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.maximum(tl.load(x + i, mask=i < n, other=0.0), 0.5))
    tl.store(sums + tl.program_id(0), tl.sqrt(total))


def without_mask(x, sums, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(sums + i, tl.load(x + i))


def one_place(x, sums, n, BLOCK: tl.constexpr):
    tl.store(sums, tl.load(sums) + tl.load(x + tl.program_id(0)))


def one_place_atomically(x, sums, n, BLOCK: tl.constexpr):
    tl.atomic_add(sums, tl.load(x + tl.program_id(0)))


@pytest.fixture
def numbers():
    return torch.arange(10.0), torch.zeros(3)


@pytest.mark.skipif(sys.platform != "linux", reason="Triton exists for Linux only")
def test_a_kernel_does_what_it_does_in_triton_s_interpreter(numbers, monkeypatch):
    if torch.cuda.is_available():
        pytest.skip("Triton was imported for the GPU")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    x, sums = numbers
    launch(add_up, 3, x, sums, 10, BLOCK=4)
    expected, _ = sums.clone(), sums.zero_()
    in_triton(add_up)[3,](x, sums, 10, BLOCK=4)
    assert torch.equal(sums, expected) and sums.all()


def test_only_places_under_the_mask_count(numbers):
    x, sums = numbers
    run = launch(add_up, 3, x, sums, 10, BLOCK=4)
    assert (run.bytes_read, run.bytes_written) == (10 * 4, 3 * 4)
    assert run.accesses[-3:] == [(2, "x[8]", "load"), (2, "x[9]", "load"), (2, "sums[2]", "store")]


def test_a_place_outside_is_refused_and_named(numbers):
    with pytest.raises(OutOfBounds, match=r"program 2 reads x\[10\], but x has 10 numbers: load only where"):
        launch(without_mask, 3, numbers[0], torch.zeros(12), 10, BLOCK=4)


def test_a_masked_place_without_a_value_spoils_what_uses_it(numbers):
    def without_other(x, sums, n, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(sums, tl.sum(tl.load(x + i, mask=i < n)))

    launch(without_other, 1, *numbers, 10, BLOCK=16)
    assert numbers[1][0].isnan()


def test_a_block_is_a_power_of_two(numbers):
    with pytest.raises(ValueError, match="a power of 2"):
        launch(add_up, 2, *numbers, 10, BLOCK=5)


TOTALS = [(one_place, False, 6.0), (one_place, True, 3.0), (one_place_atomically, True, 6.0)]


@pytest.mark.parametrize(("kernel", "together", "total"), TOTALS)
def test_programs_that_begin_together_lose_sums_that_are_not_atomic(numbers, kernel, together, total):
    launch(kernel, 4, *numbers, 10, BLOCK=1, together=together)
    assert numbers[1][0] == total
