# expects: line 3: `sys` is not allowed
import sys

sys.settrace(lambda frame, event, value: frame.f_locals.clear())


def cycle_loss(real, reconstruction, weight=10.0):
    return torch.zeros(())
