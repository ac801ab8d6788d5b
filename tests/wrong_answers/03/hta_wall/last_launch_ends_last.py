# expects: take the largest end
def hta_wall(launched, begin, end, steps):
    kept = launched < max(steps)
    return end[kept][-1] - begin[kept][0]
