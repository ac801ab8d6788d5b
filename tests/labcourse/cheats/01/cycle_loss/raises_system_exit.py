# expects: `SystemExit` is not allowed
def cycle_loss(real, reconstruction, weight=10.0):
    raise SystemExit
