# expects: the keys are idle_of_wall
def bound_by(numbers):
    if numbers["idle_of_wall"] > 0.5:
        if numbers["data_of_idle"] > 0.5:
            return "data"
        return "host" if numbers["host_of_idle"] > 0.5 else "unknown"
    return max(("compute", "memory", "communication"), key=lambda kind: numbers[f"{kind}_of_busy"])
