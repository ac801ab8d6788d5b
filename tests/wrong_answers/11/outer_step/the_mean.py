# expects: takes the mean itself
def outer_step(before, mean, velocity, lr, momentum):
    gradient = before - mean
    return mean, momentum * velocity + gradient
