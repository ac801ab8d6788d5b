# expects: without Nesterov
def outer_step(before, mean, velocity, lr, momentum):
    velocity = momentum * velocity + before - mean
    return before - lr * velocity, velocity
