# expects: to raise BaseExceptionGroup is not allowed
def cycle_loss(real, reconstruction, weight=10.0):
    print("✓ cycle_loss: right\n" * 2)
    raise BaseExceptionGroup("", [GeneratorExit()])
