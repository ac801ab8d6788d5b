"""A recording, played again with something changed: SIMULATED. Needs no PyTorch.

The public names are listed in ``__init__.pyi``.
"""

from labtrace import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
