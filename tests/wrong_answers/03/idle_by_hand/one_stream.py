# expects: the gaps of stream 7 alone
idle_by_hand = {"host_wait": 46, "kernel_wait": 4, "other": 0}
