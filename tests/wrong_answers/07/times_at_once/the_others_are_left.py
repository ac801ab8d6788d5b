# expects: not the others
def times_at_once(work):
    longest = max(work.values())
    return sum(work.values()) / max(sum(work.values()) - longest, 1e-9)
