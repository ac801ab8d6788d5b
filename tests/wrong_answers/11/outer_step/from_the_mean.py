# expects: starts from the weight before
def outer_step(before, mean, velocity, lr, momentum):
    gradient = before - mean
    velocity = momentum * velocity + gradient
    return mean - lr * (gradient + momentum * velocity), velocity
