# expects: is weight.grad itself replaced
def average_gradients(weights):
    for weight in weights:
        mean = weight.grad.clone()
        dist.all_reduce(mean)
        mean /= dist.get_world_size()
