# expects: must take their step all the same
def update(scaler, optimizers, max_norm):
    players = [optimizer.param_groups[0]["params"] for optimizer in optimizers.values()]
    for optimizer in optimizers.values():
        scaler.unscale_(optimizer)
    finite = all(weight.grad.isfinite().all() for weights in players for weight in weights)
    for optimizer, weights in zip(optimizers.values(), players, strict=True):
        nn.utils.clip_grad_norm_(weights, max_norm)
        if finite:
            scaler.step(optimizer)
        optimizer.zero_grad()
    scaler.update()
