"""The pool does what the reference's list of pictures does, and all of it fits into a checkpoint."""

import pytest
import torch
from plain_loop import ListPool

from labkit.models.pool import Pool


def pictures(first, n):
    """Pictures of one pixel, told apart by their number."""
    return torch.arange(first, first + n, dtype=torch.float32).view(n, 1, 1, 1).expand(n, 3, 1, 1)


@pytest.mark.parametrize("batch", [1, 3, 7])
def test_it_gives_back_what_a_plain_list_would(batch):
    ours, plain = Pool(5, seed=3), ListPool(5, seed=3)
    for first in range(0, 60 * batch, batch):
        assert torch.equal(ours(pictures(first, batch)), plain.query(pictures(first, batch)))
    assert torch.equal(ours.buffer[:-1], torch.stack(plain.pictures))
