# expects: is none of the words
def bound_by(numbers):
    costs = sorted(
        (numbers[f"cost_of_{part}"], part) for part in ("data", "host", "compute", "memory", "communication")
    )
    (second, _), (first, part) = costs[-2:]
    return part.upper()
