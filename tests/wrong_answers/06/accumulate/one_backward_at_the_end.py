# expects: the memory of the whole batch
def accumulate(step, real_a, real_b, k):
    total = {player: 0 for player in step.players}
    for part_a, part_b in zip(real_a.chunk(k), real_b.chunk(k), strict=True):
        part = step.inputs(part_a, part_b)
        for player in step.players:
            total[player] += sum(step.losses(player, part).values()) / k
    for player, loss in total.items():
        loss.backward(inputs=step.players[player])
