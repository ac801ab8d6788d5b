# expects: not a dict with the keys ['a', 'b', 'c']
diagnosis = {"a": "compute", "b": "data", "c": "host"}
