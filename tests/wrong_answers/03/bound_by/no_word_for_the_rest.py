# expects: host_wait_of_idle 0.2
def bound_by(numbers):
    if numbers["idle_of_wall"] > 0.5:
        if numbers["data_of_idle"] > 0.5:
            return "data"
        if numbers["host_wait_of_idle"] > 0.5:
            return "host"
    else:
        return max(("compute", "memory", "communication"), key=lambda kind: numbers[f"{kind}_of_busy"])
