# expects: full or empty in most of the idle time
diagnosis = {"A": "compute", "B": "data", "C": "several"}
