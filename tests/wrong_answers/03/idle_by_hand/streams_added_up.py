# expects: the gaps of both streams, added up
idle_by_hand = {"host_wait": 166, "kernel_wait": 4, "other": 0}
