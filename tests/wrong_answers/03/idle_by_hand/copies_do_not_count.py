# expects: a copy (Memcpy) keeps the GPU busy
idle_by_hand = {"host_wait": 50, "kernel_wait": 0, "other": 40}
