# expects: waits for the others
def apart_bound(one_process, modules):
    return one_process / min(modules.values())
