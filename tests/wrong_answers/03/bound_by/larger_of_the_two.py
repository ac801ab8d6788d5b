# expects: look at that first
def bound_by(numbers):
    if numbers["idle_of_wall"] > 0.5:
        return "data" if numbers["data_of_idle"] > numbers["host_wait_of_idle"] else "host"
    return max(("compute", "memory", "communication"), key=lambda kind: numbers[f"{kind}_of_busy"])
