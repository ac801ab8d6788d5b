"""What an answer leaves behind in the process is refused and undone, and one that sets it back itself is right."""

import gc
import os
import random

import numpy as np
import pytest
import torch
from pandas import DataFrame
from torch import nn

from labcourse.check.answers import WrongAnswer, ask
from labcourse.check.formula import formula
from labcourse.check.side_effects import SETTINGS

CHANGES = {  # by setting: how an answer may change it, and set it back
    "PyTorch's default dtype": ("torch.set_default_dtype(torch.float64)", "torch.set_default_dtype(torch.float32)"),
    "PyTorch's default device": ("torch.set_default_device('meta')", "torch.set_default_device(None)"),
    "PyTorch's number of threads": ("torch.set_num_threads(before + 1)", "torch.set_num_threads(before)"),
    "gradient mode": ("torch.set_grad_enabled(False)", "torch.set_grad_enabled(True)"),
    "autocast": ("torch.set_autocast_enabled('cuda', True)", "torch.set_autocast_enabled('cuda', False)"),
    "PyTorch's precision": tuple(f"torch.set_float32_matmul_precision('{one}')" for one in ("medium", "highest")),
    "deterministic algorithms": tuple(f"torch.use_deterministic_algorithms({on})" for on in (True, False)),
    "what NumPy does on errors": ("old = np.seterr(all='raise')", "np.seterr(**old)"),
    "Python's garbage collector": ("gc.disable()", "gc.enable()"),
    "the working directory": ("os.chdir('/')", "os.chdir(there)"),
}
FOUND = {"gc": gc, "np": np, "os": os, "torch": torch, "before": torch.get_num_threads(), "there": os.getcwd()}


def settings():
    return [read() for read, _ in SETTINGS.values()]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("fails", [False, True])
def test_a_setting_that_an_answer_leaves_changed_is_named_and_set_back(setting, fails):
    before = settings()
    lines = CHANGES[setting][0] + ("; 1 / 0" if fails else "")
    with pytest.raises(WrongAnswer, match="ZeroDivisionError" if fails else f"leaves {setting} changed"):
        ask(lambda: exec(lines, FOUND))
    assert settings() == before


@pytest.mark.parametrize("setting", SETTINGS)
def test_an_answer_may_change_a_setting_and_set_it_back(setting):
    before = settings()
    assert ask(lambda: exec("; ".join(CHANGES[setting]), FOUND)) is None
    assert settings() == before


def test_random_numbers_continue_as_if_no_answer_had_drawn_any():
    def drawn(draw):
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(1)
        ask(draw)
        return random.random(), np.random.rand(), torch.rand(()).item()

    assert drawn(lambda: None) == drawn(lambda: (random.random(), np.random.rand(), torch.rand(3)))


def scaled(table):
    table["us"] *= 2


def test_inputs_and_networks_are_as_before():
    for change, given, told in (
        (lambda network: network.requires_grad_(False), nn.Linear(2, 2), "another requires_grad"),
        (lambda network: network.eval(), nn.Sequential(nn.ReLU()), "another mode"),
        (lambda tensor: tensor.untyped_storage().resize_(0), torch.ones(3), "memory of a tensor is freed"),
        (lambda tensor: tensor.add_(1), torch.ones(2, 3).T[1], "changed in place"),
        (lambda array: array.sort(), np.array([2.0, 1.0]), "changed in place"),
        (scaled, DataFrame({"us": [1.0]}), "changed in place"),
        (lambda numbers: numbers.pop(), [1.0, float("nan")], "changed in place"),
    ):
        with pytest.raises(WrongAnswer, match=told):
            ask(lambda inside, change=change: change(*inside), [given])


def test_an_answer_may_freeze_a_network_meanwhile_and_read_what_it_likes():
    table = DataFrame({"a": [1.0, 2.0]}).assign(b=3.0, c=float("nan"))  # of several blocks, which pandas puts together

    def answer(network, table):
        network.eval().requires_grad_(False)
        network.train().requires_grad_(True)
        return len(table.copy().to_numpy()) + len(table.query("a > 1"))

    assert ask(answer, nn.Linear(2, 2), table) == 3


def added(numbers):
    yield None, "Add them up."


def test_an_answer_that_empties_its_input_does_not_spoil_it_for_the_next_one():
    check = formula(sum, [([1, 2],)], lambda random: ([3, 4],))(added)
    with pytest.raises(WrongAnswer, match="changed in place"):
        check(lambda numbers: numbers.pop() + numbers.pop())
    check(sum)


def less(a, b):
    yield a + b, "That is the sum."
    yield a * b, "That is the product."
    yield None, "Subtract."


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda a, b: a * b, "That is the product"),  # which the first case cannot tell from the sum
        (lambda a, b: a + b, "That is the sum"),
        (lambda a, b: a - b if a != 3 else 7, "Subtract"),  # right in the other cases, as no sum is
        (lambda a, b: a + b if a == 2 else 1 / 0, "That is the sum"),  # what was wrong first comes first
        (lambda a, b: "4", "a number is expected"),
        (lambda a, b: a + b if a == 2 else np.array([1.0, 2.0]), "That is the sum"),
    ],
)
def test_the_mistake_that_explains_most_cases_is_named(answer, message):
    check = formula(lambda a, b: a - b, [(2, 2), (3, 4), (5, 7)], lambda random: (1, 9))(less)
    with pytest.raises(WrongAnswer, match=message):
        check(answer)


def named(word):
    yield "no", "That is the other word."
    yield None, "One of two words."


@pytest.mark.parametrize("kind", [np.array([1.0, 2.0]), DataFrame({"a": [1, 2]}), None, {"yes": 1}])
def test_what_is_no_word_is_said_to_be_none_in_whatever_case_it_comes(kind):
    check = formula(lambda word: word, [("yes",), ("maybe",)], lambda random: ("yes",))(named)
    with pytest.raises(WrongAnswer, match="a word is expected, not"):
        check(lambda word: kind if word == "maybe" else word)
