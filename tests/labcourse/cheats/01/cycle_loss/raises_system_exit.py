# expects: your code fails with SystemExit: , in cycle_loss, line 2 of its cell:
def cycle_loss(real, reconstruction, weight=10.0):
    raise SystemExit
