# expects: not done after the mean
def apart_bound(one_process, modules):
    return one_process / (sum(modules.values()) / len(modules))
