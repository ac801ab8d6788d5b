# expects: was the GPU idle meanwhile
diagnosis = {"A": "host", "B": "data", "C": "compute"}
