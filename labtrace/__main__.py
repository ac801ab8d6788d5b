"""``python -m labtrace`` is ``labtrace``."""

from labtrace.cli import main

main()
