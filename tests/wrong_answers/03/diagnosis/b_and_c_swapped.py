# expects: which of labkit's ranges the host was in
diagnosis = {"A": "compute", "B": "host", "C": "data"}
