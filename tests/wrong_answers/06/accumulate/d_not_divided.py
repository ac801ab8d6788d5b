# expects: discriminators' gradient is 4 times too large
def accumulate(step, real_a, real_b, k):
    for part_a, part_b in zip(real_a.chunk(k), real_b.chunk(k), strict=True):
        part = step.inputs(part_a, part_b)
        loss_g = sum(step.losses("generators", part).values()) / k
        loss_g.backward(inputs=step.players["generators"])
        sum(step.losses("discriminators", part).values()).backward()
