# expects: a race needs two programs
def races(accesses):
    """The places on which programs race, as a set. accesses: (program, place, "load" or "store" or "atomic"), ..."""
    found = set()
    for _, place, kind in accesses:
        for _, there, other_kind in accesses:
            if place == there and {kind, other_kind} not in ({"load"}, {"atomic"}):
                found.add(place)
    return found
