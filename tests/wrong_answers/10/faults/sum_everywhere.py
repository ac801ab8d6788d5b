# expects: move the weights about twice as far
faults = {"program A": 1, "program B": 4, "program C": 1, "program D": 3}
