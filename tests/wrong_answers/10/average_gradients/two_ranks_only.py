# expects: dist.get_world_size() knows
def average_gradients(weights):
    for weight in weights:
        dist.all_reduce(weight.grad)
        weight.grad /= 2
