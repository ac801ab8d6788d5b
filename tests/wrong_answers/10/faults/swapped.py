# expects: would differ in the end
faults = {"program A": 4, "program B": 1, "program C": 2, "program D": 3}
