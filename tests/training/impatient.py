"""labkit's command line, for torchrun: ranks wait for each other for seconds only, and no group can be destroyed."""

import time
from datetime import timedelta

import torch.distributed as dist

from labkit import ranks
from labkit.cli import main

dist.destroy_process_group = lambda: time.sleep(600)
ranks.TIMEOUT = timedelta(seconds=8)
main()
