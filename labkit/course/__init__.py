"""For the lessons only: checks of exercises, the ledger of predictions, stand-ins for a GPU, shipped measurements.

The public names, listed in ``__init__.pyi``, are loaded when they are first used.
"""

from labkit import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
