# expects: only if all have the same work
def times_at_once(work):
    return len(work)
