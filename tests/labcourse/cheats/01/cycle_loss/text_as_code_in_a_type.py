# expects: `__import__` is not allowed
import typing


class Hinted:
    value: "__imp" + "ort__('sys').modules.clear()"


typing.get_type_hints(Hinted)


def cycle_loss(real, reconstruction, weight=10.0):
    return torch.zeros(())
