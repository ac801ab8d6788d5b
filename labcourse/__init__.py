"""Code for the lessons: checks of the exercises, predictions, figures, stand-ins for a GPU, shipped recordings.

The public names, listed in ``__init__.pyi``, are loaded when they are first used.
"""

from labtrace import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
