# expects: is none of the words
def bound_by(numbers):
    return "HOST" if numbers["idle_of_wall"] > 0.5 else "COMPUTE"
