# expects: in microseconds
idle_by_hand = {"host_wait": 38 / 80, "kernel_wait": 2 / 80, "other": 40 / 80}
