# expects: how long the step takes then
def times_at_once(work):
    return max(work.values())
