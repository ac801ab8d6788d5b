# expects: The step is over when the *last* module is done
def times_at_once(work):
    return sum(work.values()) / min(work.values())
