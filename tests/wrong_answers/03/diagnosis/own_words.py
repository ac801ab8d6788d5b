# expects: is none of the words
diagnosis = {"A": "compute", "B": "data loader", "C": "CPU"}
