# expects: not a list
diagnosis = ["compute", "data", "host"]
