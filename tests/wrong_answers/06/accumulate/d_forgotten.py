# expects: backward() for both players
def accumulate(step, real_a, real_b, k):
    for part_a, part_b in zip(real_a.chunk(k), real_b.chunk(k), strict=True):
        loss = sum(step.losses("generators", step.inputs(part_a, part_b)).values()) / k
        loss.backward(inputs=step.players["generators"])
