# expects: Is a `return` missing?
def bound_by(numbers):
    print("host" if numbers["idle_of_wall"] > 0.5 else "compute")
