# expects: Communication can dominate
def bound_by(numbers):
    costs = sorted((numbers[f"cost_of_{part}"], part) for part in ("data", "host", "compute", "memory"))
    (second, _), (first, part) = costs[-2:]
    return part if first >= 0.1 and first >= 2 * second else "several"
