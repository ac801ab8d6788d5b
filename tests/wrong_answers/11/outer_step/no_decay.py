# expects: grow for ever
def outer_step(before, mean, velocity, lr, momentum):
    gradient = before - mean
    velocity = velocity + gradient
    return before - lr * (gradient + momentum * velocity), velocity
