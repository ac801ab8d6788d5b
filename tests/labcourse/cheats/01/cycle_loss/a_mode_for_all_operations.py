# expects: `overrides` is not allowed
from contextlib import ExitStack

from torch.overrides import TorchFunctionMode


class Mode(TorchFunctionMode):
    pass


ExitStack().enter_context(Mode())


def cycle_loss(real, reconstruction, weight=10.0):
    return torch.zeros(())
