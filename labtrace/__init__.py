"""labtrace: read a GPU recording of PyTorch, see where its time goes, and what a change would bring. Needs no PyTorch.

The public names, listed in ``__init__.pyi``, are loaded when they are first used.
"""

from labtrace import lazy

__version__ = "0.3.0"
__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
