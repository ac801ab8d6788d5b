"""Figures and widgets, in JupyterLab and in Colab: those of training, and labtrace's of traces.

The public names are listed in ``__init__.pyi``.
"""

from labtrace import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
