# expects: other: a number is expected, not None
idle_by_hand = {"host_wait": 38, "kernel_wait": 2, "other": None}
