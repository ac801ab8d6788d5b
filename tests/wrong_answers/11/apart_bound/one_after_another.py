# expects: do not add up
def apart_bound(one_process, modules):
    return one_process / sum(modules.values())
