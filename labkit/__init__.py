"""labkit: build CycleGAN, see where the time of its training goes, and make it faster.

The public names, listed in ``__init__.pyi``, are loaded when they are first used: what needs neither plotly, HTA nor
jupyter works on a machine without them.
"""

from labtrace import __version__ as __version__
from labtrace import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
