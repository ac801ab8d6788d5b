"""Numbers and objects of every kind: a run gives them back as they were, or does not begin."""

import collections
import decimal
import enum
import pathlib

import numpy as np
import pytest
import torch
from tiny import two_layers

import labkit
from labkit.training import checkpoints

NUMPY = [getattr(np, name)(1.1) for name in ("float16", "float32", "float64", "longdouble", "int8", "uint64", "bool_")]
ARRAYS = [np.array(2.5), np.arange(6, dtype=">f4").reshape(2, 3).T, np.zeros((0, 3)), np.array(["a", "bcd"])]
PYTHON = [None, True, 2**70, -0.1, 1j, "text", b"bytes", (1, {2}), torch.Size([3]), torch.float16, torch.device("cpu")]
TENSORS = [torch.tensor([1.1], dtype=torch.float64), torch.tensor(3), torch.eye(2, dtype=torch.bfloat16)]
KEPT = [*NUMPY, np.str_("text"), np.datetime64("2026-11-29"), *ARRAYS, *PYTHON, *TENSORS, {np.int64(3): 1, (1, "a"): 2}]


class Keeps:
    """Part of a step, a callback or a network that keeps something."""

    kept = None

    def state_dict(self):
        return {**super().state_dict(), "kept": self.kept}

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.kept = state["kept"]

    def update(self, player):
        super().update(player)
        self.moments = [moments.setdefault("kept", self.kept) for moments in self.optimizers[player].state.values()]


class Net(torch.nn.Sequential):
    def get_extra_state(self):
        return self.kept

    def set_extra_state(self, state):
        self.kept = state


def places(train, tiny, folder, steps, kept):
    """What a network, a step, its optimiser and a callback have of `kept` after a run."""
    bases = [(Net,), (Keeps,), (Keeps, labkit.Callback)]
    net, step, callback = (type("Own", base, {"kept": kept}) for base in bases)
    run = train(steps, folder, watcher := callback(), model=tiny(generator=net(*two_layers())), own=[step])
    return run.model.G_A.kept, run.step.kept, run.step.moments[0], watcher.kept


def test_what_parts_of_one_s_own_keep_comes_back_with_its_type(train, tiny, tmp_path):
    places(train, tiny, tmp_path, 1, KEPT)
    for found in places(train, tiny, tmp_path, 2, None):
        assert repr(found) == repr(KEPT)


OTHERS = [pathlib.Path("a"), decimal.Decimal(1), enum.StrEnum("E", "A").A, collections.deque(), 10**1000, frozenset()]
OTHERS += [collections.defaultdict(int), print, np.ma.array([1.0]), np.array([None]), labkit.CycleGAN]


@pytest.mark.parametrize("kept", OTHERS, ids=lambda kept: type(kept).__name__)
def test_what_cannot_come_back_is_refused_before_the_first_step(train, tiny, tmp_path, kept):
    with pytest.raises(labkit.LabkitError, match=r"^Own 1\['kept'\]\[0\]: no checkpoint gives back <"):
        places(train, tiny, tmp_path, 1, [kept])
    assert not (tmp_path / checkpoints.FILE).exists()
