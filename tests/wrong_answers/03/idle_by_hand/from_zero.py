# expects: wall time begins with the first kernel
idle_by_hand = {"host_wait": 48, "kernel_wait": 2, "other": 40}
