# expects: divide by their number
def average_gradients(weights):
    for weight in weights:
        dist.all_reduce(weight.grad)
