"""What is said of an answer whose code fails."""

from __future__ import annotations

import linecache
import re
import traceback

MOST_CHARACTERS = 200  # of an error's text
ERRORS = {  # a pattern in an error of the answer's code: where to look
    "UnboundLocal": "A name that a function assigns to is local in it: give it a value before this line.",
    "NameError": "Is the name spelt right, and is it an argument or given a value before this line?",
    "No module named": "It is not installed here: do without it.",
    "KeyError": "Is the key spelt right? A key that may be new needs a first value: total.get(name, 0).",
    "'dict' object has no attribute": 'A value of a dict is numbers["name"], not numbers.name.',
    "NoneType": "Something is None here: a function without `return`, or a value that was never set.",
    "before Module.__init__": "In __init__, call super().__init__() first.",
    "AttributeError": "Is it spelt the same everywhere, and set before it is read?",
    "positional argument|keyword argument": "Does it fit the function's first line? A method begins with self, and "
    "f(*values) hands over the values of a tuple one by one.",
    "IndexError": "The first place is 0, and the last is the length - 1.",
    "Boolean value of Tensor": "Is a class used as a function? nn.L1Loss()(a, b) builds the loss first, then calls it.",
    "in-place operation": "Make a new tensor: a - b, not a -= b.",
    "size|shape|dimension|channels": "Print the shapes before this line: which do not fit?",
}


def in_words(error: BaseException, if_it_fails: str) -> str:
    """An error of an answer's code, with the line of the notebook that raised it, and hints.

    Args:
        if_it_fails: a hint of the check.
    """
    walked = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [(frame.f_code, line) for frame, line in walked if frame.f_globals.get("__name__") == "__main__"]
    if own and isinstance(error, NotImplementedError) and walked[-1][0].f_code is own[-1][0]:
        return f"{own[-1][0].co_qualname} is not written yet: replace `raise NotImplementedError` in it by your code."
    text = f"{type(error).__name__}: {str(error)[:MOST_CHARACTERS]}"
    hints = [hint for pattern, hint in ERRORS.items() if re.search(pattern, text)][:1] + [if_it_fails]
    where = f"your answer cannot be checked: it fails with {text}."
    if own:
        code, line = own[-1]
        place = f"in {code.co_name}, line {line} of its cell: {linecache.getline(code.co_filename, line).strip()}"
        where = f"your code fails with {text}, {place.removesuffix(': ')}."
    return " ".join(filter(None, [where, *hints]))
