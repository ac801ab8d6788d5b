# expects: hidden behind other kernels
def bound_by(numbers):
    if numbers["communication_of_busy"] > 0.5:
        return "communication"
    costs = sorted(
        (numbers[f"cost_of_{part}"], part) for part in ("data", "host", "compute", "memory", "communication")
    )
    (second, _), (first, part) = costs[-2:]
    return part if first >= 0.1 and first >= 2 * second else "several"
