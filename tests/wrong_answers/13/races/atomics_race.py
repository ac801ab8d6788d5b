# expects: Atomic additions wait for each other
def races(accesses):
    """The places on which programs race, as a set. accesses: (program, place, "load" or "store" or "atomic"), ..."""
    found = set()
    for program, place, kind in accesses:
        for other, there, other_kind in accesses:
            if place == there and program != other and {kind, other_kind} != {"load"}:
                found.add(place)
    return found
