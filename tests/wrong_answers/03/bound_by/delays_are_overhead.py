# expects: that is a full queue
def bound_by(numbers):
    if numbers["long_delays_of_kernels"] > 0.5:
        return "host"
    return max(("compute", "memory", "communication"), key=lambda kind: numbers[f"{kind}_of_busy"])
