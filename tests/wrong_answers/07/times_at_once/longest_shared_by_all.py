# expects: nothing shares it
def times_at_once(work):
    return len(work) * sum(work.values()) / max(work.values())
