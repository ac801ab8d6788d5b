# expects: which of labkit's ranges was the host in
diagnosis = {"A": "compute", "B": "host", "C": "host"}
