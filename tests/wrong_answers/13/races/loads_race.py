# expects: leave the place as it is
def races(accesses):
    """The places on which programs race, as a set. accesses: (program, place, "load" or "store" or "atomic"), ..."""
    found = set()
    for program, place, kind in accesses:
        for other, there, other_kind in accesses:
            if place == there and program != other and {kind, other_kind} != {"atomic"}:
                found.add(place)
    return found
