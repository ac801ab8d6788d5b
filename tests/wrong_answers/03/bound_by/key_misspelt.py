# expects: the keys are idle_of_wall
def bound_by(numbers):
    costs = sorted(
        (numbers[f"costs_of_{part}"], part) for part in ("data", "host", "compute", "memory", "communication")
    )
    (second, _), (first, part) = costs[-2:]
    return part if first >= 0.1 and first >= 2 * second else "several"
