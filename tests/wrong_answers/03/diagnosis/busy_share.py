# expects: full or empty
diagnosis = {"A": "compute", "B": "data", "C": "compute"}
