# expects: Clip the gradients to max_norm
def update(scaler, optimizers, max_norm):
    for optimizer in optimizers.values():
        scaler.step(optimizer)
        optimizer.zero_grad()
    scaler.update()
