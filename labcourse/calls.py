"""Calls an answer with plain values, and says in plain values what came of it.

This runs beside the answer: in the student's own process, or in that of the sandbox where answers are graded. The
checks, which know what is right, are in `labcourse.check`, and never in the sandbox.
"""

from __future__ import annotations

import json
import linecache
import random
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from labcourse import observe
from labcourse.observe.mistake import MistakeFound
from labcourse.plain_values import decode, encode


def reply(request: str, names: Mapping[str, Any]) -> str:
    """What an answer makes of its inputs, as JSON.

    Args:
        request: JSON, with these keys:

            | key | meaning |
            |---|---|
            | name | of the answer, among `names` |
            | value | the answer itself, if it is a plain value and has no name |
            | through | a function of `labcourse.observe`, or None: the answer itself is called |
            | given | the inputs, or None: the answer itself is asked for |
            | seed | of all random numbers |
        names: the student's.

    Returns:
        A dict with one key: "value", "error" (see `_described`), or "changed" if an input was changed in place.
    """
    asked = json.loads(request)
    try:
        answer = names[asked["name"]] if "name" in asked else decode(asked["value"])
        if asked["given"] is None:
            return json.dumps({"value": encode(answer)})
        given = [decode(one) for one in asked["given"]]
        with _seeded(asked["seed"]):
            if asked["through"]:
                got = getattr(observe, asked["through"])(answer, *given)
            else:
                got = answer(*given)
            value = encode(got)
            if json.dumps([encode(one) for one in given]) != json.dumps(asked["given"]):
                return json.dumps({"changed": True})
        return json.dumps({"value": value})
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an answer may raise anything
        return json.dumps({"error": _described(error)})


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Inside the block, the random numbers of Python, NumPy and PyTorch follow from `seed`; after it they go on."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def _described(error: BaseException) -> dict[str, Any]:
    """An error in plain values.

    Its type and text; "place" is the line of the notebook that raised it, or called the code that did; "unwritten" the
    name of the answer's function that raised a NotImplementedError of its own; "mistake" if it is a `MistakeFound`.
    """
    walked = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [(frame.f_code, line) for frame, line in walked if frame.f_globals.get("__name__") == "__main__"]
    place = ""
    if own:
        code, line = own[-1]
        place = f"in {code.co_name}, line {line} of its cell: {linecache.getline(code.co_filename, line).strip()}"
    raised_by = walked[-1][0] if walked else None
    unwritten = (
        isinstance(error, NotImplementedError) and raised_by and raised_by.f_globals.get("__name__") == "__main__"
    )
    return {
        "type": type(error).__name__,
        "text": _text(error),
        "notes": [str(note) for note in getattr(error, "__notes__", [])],
        "place": place.removesuffix(": "),
        "unwritten": raised_by.f_code.co_qualname if unwritten and raised_by else "",
        "mistake": type(error) is MistakeFound,
    }


def _text(error: BaseException) -> str:
    """An error's text, "" if its own class prevents that it is shown."""
    try:
        return str(error)
    except BaseException:
        return ""
