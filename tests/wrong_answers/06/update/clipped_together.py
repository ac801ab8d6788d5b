# expects: clip them apart
def update(scaler, optimizers, max_norm):
    for optimizer in optimizers.values():
        scaler.unscale_(optimizer)
    weights = [weight for optimizer in optimizers.values() for weight in optimizer.param_groups[0]["params"]]
    nn.utils.clip_grad_norm_(weights, max_norm)
    for optimizer in optimizers.values():
        scaler.step(optimizer)
        optimizer.zero_grad()
    scaler.update()
