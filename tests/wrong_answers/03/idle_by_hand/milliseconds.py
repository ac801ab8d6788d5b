# expects: in microseconds
idle_by_hand = {"host_wait": 0.038, "kernel_wait": 0.002, "other": 0.04}
