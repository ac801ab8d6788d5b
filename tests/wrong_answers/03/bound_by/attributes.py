# expects: numbers["name"]
def bound_by(numbers):
    return "host" if numbers.cost_of_host > 0.5 else "compute"
