# expects: average the gradients, weight.grad
def average_gradients(weights):
    for weight in weights:
        with torch.no_grad():
            weight += 1
            dist.all_reduce(weight)
