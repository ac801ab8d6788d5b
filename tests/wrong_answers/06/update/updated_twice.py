# expects: Call it once, after both players
def update(scaler, optimizers, max_norm):
    for optimizer in optimizers.values():
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], max_norm)
        scaler.step(optimizer)
        optimizer.zero_grad()
        scaler.update()
