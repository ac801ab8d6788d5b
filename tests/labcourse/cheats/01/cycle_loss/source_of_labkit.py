# expects: `inspect` has no business
text = inspect.getsource(labkit.models.losses.cycle_loss)
