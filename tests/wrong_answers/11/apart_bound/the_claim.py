# expects: all modules took equally long
def apart_bound(one_process, modules):
    return float(len(modules))
