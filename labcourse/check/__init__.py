"""The checks of the notebooks' exercises, one file for each notebook. A check's message names the likely mistake.

The checks, listed in ``__init__.pyi``, are loaded when they are first used: most need neither plotly nor HTA.
"""

import os

from labtrace import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)

if "LABKIT_CHECK_SEED" in os.environ:  # the answers are graded
    from labcourse.check import originality

    originality.start()
