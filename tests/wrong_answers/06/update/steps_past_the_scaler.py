# expects: leaves that step out by itself
def update(scaler, optimizers, max_norm):
    for optimizer in optimizers.values():
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], max_norm)
        optimizer.step()
        optimizer.zero_grad()
    scaler.update()
