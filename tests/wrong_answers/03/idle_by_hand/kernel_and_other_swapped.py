# expects: kernel_wait and other are swapped
idle_by_hand = {"host_wait": 38, "kernel_wait": 40, "other": 2}
