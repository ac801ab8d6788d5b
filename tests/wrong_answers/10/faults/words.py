# expects: is no number from course.FAULTS
faults = {"program A": "sum", "program B": 4, "program C": 2, "program D": 3}
