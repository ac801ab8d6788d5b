"""labkit's command line, for torchrun, whose ranks wait for each other for seconds only."""

from datetime import timedelta

from labkit import ranks
from labkit.cli import main

ranks.TIMEOUT = timedelta(seconds=8)
main()
