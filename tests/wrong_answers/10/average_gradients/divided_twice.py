# expects: once is the mean
def average_gradients(weights):
    for weight in weights:
        weight.grad /= dist.get_world_size()
        dist.all_reduce(weight.grad)
        weight.grad /= dist.get_world_size()
