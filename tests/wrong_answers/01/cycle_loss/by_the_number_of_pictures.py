# expects: not by the number of pictures
def cycle_loss(real, reconstruction, weight=10.0):
    return weight * (reconstruction - real).abs().sum() / len(real)
