# expects: a share of the busy time
def bound_by(numbers):
    return max(("compute", "memory", "communication"), key=lambda kind: numbers[f"{kind}_of_busy"])
