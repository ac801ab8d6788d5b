# expects: divide it by k before backward()
def accumulate(step, real_a, real_b, k):
    for part_a, part_b in zip(real_a.chunk(k), real_b.chunk(k), strict=True):
        part = step.inputs(part_a, part_b)
        for player in ("generators", "discriminators"):
            sum(step.losses(player, part).values()).backward(inputs=step.players[player])
