# expects: divide the time before by the time after
def apart_bound(one_process, modules):
    return max(modules.values()) / one_process
