# expects: still nothing costs as much as the host
def bound_by(numbers):
    if numbers["idle_of_wall"] > 0.5:
        return "host"
    return max(("compute", "memory", "communication"), key=lambda kind: numbers[f"{kind}_of_busy"])
