"""Figures and widgets of traces, in JupyterLab and in Colab. The public names are listed in ``__init__.pyi``."""

import sys

from labtrace import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)

if "google.colab" in sys.modules:  # Colab shows widgets from other packages only after this call
    from google.colab import output

    output.enable_custom_widget_manager()
