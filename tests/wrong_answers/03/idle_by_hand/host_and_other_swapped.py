# expects: host_wait and other are swapped
idle_by_hand = {"host_wait": 40, "kernel_wait": 2, "other": 38}
