# expects: would hardly move
faults = {"program A": 2, "program B": 4, "program C": 1, "program D": 3}
