# expects: half as many different ones
faults = {"program A": 1, "program B": 3, "program C": 2, "program D": 4}
