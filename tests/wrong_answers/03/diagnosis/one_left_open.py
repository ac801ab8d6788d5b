# expects: trace C: a word is expected, not None
diagnosis = {"A": "compute", "B": "data", "C": None}
