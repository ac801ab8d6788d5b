# expects: not the host's fault
idle_by_hand = {"host_wait": 78, "kernel_wait": 2, "other": 0}
