# expects: need not add up to 1
def times_at_once(work):
    return 1 / max(work.values())
