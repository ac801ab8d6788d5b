# expects: divide it by k before backward()
def accumulate(step, real_a, real_b, k):
    for part_a, part_b in zip(real_a.chunk(k), real_b.chunk(k), strict=True):
        part = step.inputs(part_a, part_b)
        loss_g = sum(step.losses("generators", part).values())
        loss_g.backward()
        loss_d = sum(step.losses("discriminators", part).values())
        loss_d.backward()
