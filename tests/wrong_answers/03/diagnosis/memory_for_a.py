# expects: kind of kernel
diagnosis = {"A": "memory", "B": "data", "C": "host"}
