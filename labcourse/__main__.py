"""``python -m labcourse`` is ``labcourse``."""

from labcourse.cli import main

main()
