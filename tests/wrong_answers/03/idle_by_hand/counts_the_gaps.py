# expects: how many gaps
idle_by_hand = {"host_wait": 1, "kernel_wait": 1, "other": 1}
