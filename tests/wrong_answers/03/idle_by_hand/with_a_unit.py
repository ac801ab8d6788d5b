# expects: host_wait: a number is expected, not a word
idle_by_hand = {"host_wait": "38 us", "kernel_wait": "2 us", "other": "40 us"}
