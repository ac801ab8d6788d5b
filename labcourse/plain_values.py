"""Plain values as JSON: numbers, words, tensors, arrays and tables, and what holds them.

So what an answer returns can leave its process, and no code of the answer comes along, as it would with pickle.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    )
}


@dataclass(frozen=True)
class Other:
    """Stands for a value that is not plain, such as a function: only the name of its type is known."""

    type_name: str


def kind(value: object) -> str:
    """The type of an answer in words, with the shape of a tensor or an array, a dict's keys, a tuple's length."""
    if isinstance(value, Mapping):
        return f"a dict with the keys {sorted(map(str, value))}"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)} values"
    if type(value) in (Tensor, np.ndarray):  # not a class that an answer defines
        return f"{'a tensor' if type(value) is Tensor else 'an array'} of shape {tuple(value.shape)}"  # type: ignore[attr-defined]
    if isinstance(value, Real) and not isinstance(value, bool):
        return "a number"
    name = value.type_name if isinstance(value, Other) else type(value).__name__
    return {"str": "a word", "NoneType": "None"}.get(name, f"a {name}")


def encode(value: Any) -> Any:
    """A value as JSON has it. The type of a named tuple, of a dict's subclass or of a number of NumPy is lost."""
    if value is None or type(value) in (bool, str):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, Real):
        return int(value) if isinstance(value, Integral) else float(value)
    if isinstance(value, list):
        return [encode(one) for one in value]
    if isinstance(value, tuple | set | frozenset):
        return {"type": "tuple" if isinstance(value, tuple) else "set", "items": [encode(one) for one in value]}
    if isinstance(value, range):
        return {"type": "range", "items": [value.start, value.stop, value.step]}
    if isinstance(value, Mapping):
        return {"type": "dict", "items": [[encode(key), encode(one)] for key, one in value.items()]}
    if type(value) is Tensor and (name := str(value.dtype).removeprefix("torch.")) in DTYPES:
        numbers = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {
            "type": "tensor",
            "dtype": name,
            "shape": list(value.shape),
            "bytes": _text(numbers.view(-1).view(torch.uint8).numpy() if value.numel() else b""),
            "requires_grad": value.requires_grad,
        }
    if type(value) is np.ndarray and value.dtype.kind in "biuf":
        shape = list(value.shape)
        return {"type": "array", "dtype": value.dtype.str, "shape": shape, "bytes": _text(np.ascontiguousarray(value))}
    if type(value) is pd.DataFrame:
        columns = [[encode(name), encode(_column(value[name]))] for name in value.columns]
        return {"type": "table", "index": _index(value.index), "columns": columns}
    if type(value) is pd.Series:
        return {"type": "series", "index": _index(value.index), "values": encode(_column(value))}
    return {"type": "other", "name": type(value).__name__}


def decode(tree: Any) -> Any:
    """The value that `encode` turned into `tree`.

    Raises:
        ValueError, KeyError, TypeError: nothing that `encode` writes.
    """
    if isinstance(tree, list):
        return [decode(one) for one in tree]
    if not isinstance(tree, dict):
        return tree
    match tree["type"]:
        case "tuple":
            return tuple(map(decode, tree["items"]))
        case "set":
            return set(map(decode, tree["items"]))
        case "range":
            return range(*tree["items"])
        case "dict":
            return {decode(key): decode(one) for key, one in tree["items"]}
        case "tensor":
            data, dtype = bytearray(base64.b64decode(tree["bytes"])), DTYPES[tree["dtype"]]
            tensor = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
            return tensor.reshape(tree["shape"]).requires_grad_(tree["requires_grad"])
        case "array":
            numbers = np.frombuffer(bytearray(base64.b64decode(tree["bytes"])), dtype=tree["dtype"])
            return numbers.reshape(tree["shape"])
        case "table":
            columns = {decode(name): decode(values) for name, values in tree["columns"]}
            return pd.DataFrame(columns, index=_decoded_index(tree["index"]))
        case "series":
            return pd.Series(decode(tree["values"]), index=_decoded_index(tree["index"]))
        case "other":
            return Other(str(tree["name"]))
    raise ValueError(f"{tree['type']!r} is no type of a plain value.")


def _text(data: Any) -> str:
    return base64.b64encode(data).decode()


def _column(values: pd.Series) -> Any:
    """A column's numbers as an array, anything else as a list."""
    numbers = isinstance(values.dtype, np.dtype) and values.dtype.kind in "biuf"
    return values.to_numpy() if numbers else values.tolist()


def _index(index: pd.Index) -> dict[str, Any]:
    return {"names": encode(list(index.names)), "labels": encode(index.tolist())}


def _decoded_index(tree: dict[str, Any]) -> pd.Index:
    names, labels = decode(tree["names"]), decode(tree["labels"])
    if len(names) > 1:
        return pd.MultiIndex.from_tuples(labels, names=names)
    return pd.Index(labels, name=names[0])
