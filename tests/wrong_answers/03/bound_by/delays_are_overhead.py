# expects: hardly idle: a full queue
def bound_by(numbers):
    if numbers["long_delays_of_kernels"] > 0.5:
        return "host"
    costs = sorted(
        (numbers[f"cost_of_{part}"], part) for part in ("data", "host", "compute", "memory", "communication")
    )
    (second, _), (first, part) = costs[-2:]
    return part if first >= 0.1 and first >= 2 * second else "several"
