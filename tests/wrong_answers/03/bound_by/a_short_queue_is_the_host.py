# expects: The queue is long on average
def bound_by(numbers):
    if numbers["mean_queue"] >= 10:
        return "compute"
    costs = sorted(
        (numbers[f"cost_of_{part}"], part) for part in ("data", "host", "compute", "memory", "communication")
    )
    (second, _), (first, part) = costs[-2:]
    return part if first >= 0.1 and first >= 2 * second else "several"
