# expects: repeat some work
def apart_bound(one_process, modules):
    return sum(modules.values()) / max(modules.values())
