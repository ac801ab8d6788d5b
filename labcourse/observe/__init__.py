"""What is seen of an answer that is more than a function of plain values: a network, a step, a loop, a kernel.

A function here takes the answer and plain inputs, has it work, and returns what it did as plain values. It runs beside
the answer, so it holds nothing that is right: `labcourse.check` compares.

The names, listed in ``__init__.pyi``, are loaded when they are first used.
"""

from labtrace import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
