# expects: moves away from the mean
def outer_step(before, mean, velocity, lr, momentum):
    gradient = mean - before
    velocity = momentum * velocity + gradient
    return before - lr * (gradient + momentum * velocity), velocity
