# expects: all steps but the last count
def hta_wall(launched, begin, end, steps):
    kept = launched < steps[1]
    return end[kept].max() - begin[kept].min()
