# expects: even if it is less than half
def bound_by(numbers):
    if numbers["idle_of_wall"] > 0.5:
        if numbers["data_of_idle"] > 0.5:
            return "data"
        return "host" if numbers["host_wait_of_idle"] > 0.5 else "unknown"
    if numbers["memory_of_busy"] > 0.5:
        return "memory"
    return "communication" if numbers["communication_of_busy"] > 0.5 else "compute"
