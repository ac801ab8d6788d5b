# expects: from 0 to 1
def bound_by(numbers):
    if numbers["idle_of_wall"] > 50:
        if numbers["data_of_idle"] > 50:
            return "data"
        return "host" if numbers["host_wait_of_idle"] > 50 else "unknown"
    return max(("compute", "memory", "communication"), key=lambda kind: numbers[f"{kind}_of_busy"])
