# expects: not None
def bound_by(numbers):
    print("host" if numbers["idle_of_wall"] > 0.5 else "compute")
