# expects: not the old one
def outer_step(before, mean, velocity, lr, momentum):
    gradient = before - mean
    return before - lr * (gradient + momentum * velocity), momentum * velocity + gradient
