# expects: does not use it
def outer_step(before, mean, velocity, lr, momentum):
    gradient = before - mean
    return before - lr * gradient, momentum * velocity + gradient
