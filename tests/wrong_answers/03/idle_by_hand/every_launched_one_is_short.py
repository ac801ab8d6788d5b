# expects: kernel_wait is not 42
idle_by_hand = {"host_wait": 38, "kernel_wait": 42, "other": 0.0}
