# expects: labkit's own
def growth(before, after, steps):
    from labkit.course import growth as given

    return given(before, after, steps)
