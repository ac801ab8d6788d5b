# expects: the word alone
def bound_by(numbers):
    if numbers["idle_of_wall"] > 0.5:
        if numbers["data_of_idle"] > 0.5:
            return "data"
        return "host" if numbers["host_wait_of_idle"] > 0.5 else "unknown"
    return max(("compute_of_busy", "memory_of_busy", "communication_of_busy"), key=numbers.get)
