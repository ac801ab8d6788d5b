# expects: no gradient reaches the translator
def deviation_loss(code, translated, weight):
    return weight * (translated.detach() - code).abs().mean()
