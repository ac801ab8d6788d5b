# expects: how many times faster is one over it
def times_at_once(work):
    return max(work.values()) / sum(work.values())
