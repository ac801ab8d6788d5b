"""Plain values come back as they were, and nothing else does."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from labcourse.plain_values import Other, decode, encode


def there_and_back(value):
    return decode(json.loads(json.dumps(encode(value))))


@pytest.mark.parametrize(
    "value",
    [None, True, 3, 0.1, float("inf"), "a word", [1, [2.5]], (1, (2, "x")), {"a": 1, 2: (3,)}, {1, 2}, range(2, 9, 3)],
    ids=repr,
)
def test_numbers_words_and_what_holds_them_come_back(value):
    back = there_and_back(value)
    assert back == value and type(back) is type(value)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.uint8])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_tensors_come_back(dtype, shape):
    value = torch.rand(shape).mul(5).to(dtype)
    back = there_and_back(value)
    assert back.dtype is dtype and back.shape == value.shape and torch.equal(back, value)


def test_a_tensor_of_another_order_in_memory_and_its_gradient_flag_come_back():
    value = torch.rand(2, 3).T.requires_grad_()
    back = there_and_back(value)
    assert torch.equal(back, value) and back.requires_grad


def test_arrays_and_tables_come_back():
    array = np.arange(6.0).reshape(2, 3)[:, ::2]
    assert np.array_equal(there_and_back(array), array)
    table = pd.DataFrame({"name": ["a", "b"], "us": [1.5, np.nan]}, index=pd.Index(["x", "y"], name="row"))
    pd.testing.assert_frame_equal(there_and_back(table), table)
    levels = table.set_index(pd.MultiIndex.from_tuples([("x", 0), ("x", 1)], names=["name", "seed"]))
    pd.testing.assert_frame_equal(there_and_back(levels), levels)
    pd.testing.assert_series_equal(there_and_back(table["us"]), table["us"], check_names=False)


class Equal:
    def __eq__(self, other):
        return True


@pytest.mark.parametrize("value", [Equal(), print, nn.Parameter(torch.ones(1)), torch.device("cpu"), 1j])
def test_of_anything_else_only_the_name_of_the_type_comes_back(value):
    assert there_and_back(value) == Other(type(value).__name__)


@pytest.mark.parametrize(
    "tree",
    [
        {"type": "nothing"},
        {"type": "tensor", "dtype": "object", "shape": [1], "bytes": "", "requires_grad": False},
        {"type": "tensor", "dtype": "int64", "shape": [9], "bytes": "AAAAAAAAAAA=", "requires_grad": False},
        {"type": "array", "dtype": "O", "shape": [1], "bytes": "AAAAAAAAAAA="},
        {"type": "set", "items": [[1]]},
        {},
    ],
)
def test_what_is_no_plain_value_is_an_error(tree):
    with pytest.raises((ValueError, KeyError, TypeError, RuntimeError)):
        decode(tree)
