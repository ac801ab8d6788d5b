# expects: a third kind of kernel
def bound_by(numbers):
    if numbers["idle_of_wall"] > 0.5:
        if numbers["data_of_idle"] > 0.5:
            return "data"
        return "host" if numbers["host_wait_of_idle"] > 0.5 else "unknown"
    return "compute" if numbers["compute_of_busy"] > numbers["memory_of_busy"] else "memory"
