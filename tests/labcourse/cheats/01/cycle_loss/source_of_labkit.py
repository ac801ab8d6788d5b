# expects: `inspect` is not allowed
text = inspect.getsource(labkit.models.losses.cycle_loss)
