"""A GPU's timeline without a GPU: models of launches, queues and streams. All of its times are SIMULATED.

The public names are listed in ``__init__.pyi``.
"""

from labtrace import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
