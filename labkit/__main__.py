"""``python -m labkit`` is ``labkit``."""

from labkit.cli import main

main()
