# expects: return
def hta_wall(launched, begin, end, steps):
    kept = launched < max(steps)
    print(end[kept].max() - begin[kept].min())
