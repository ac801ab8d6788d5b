# expects: not the first
def times_at_once(work):
    return sum(work.values()) / min(work.values())
