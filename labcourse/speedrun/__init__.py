"""The speedrun: apples to oranges in the fewest seconds. `RULES` has the rules, `labcourse speedrun` is the judge.

The public names, listed in ``__init__.pyi``, are loaded when they are first used.
"""

from labtrace import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
