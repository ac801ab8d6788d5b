# expects: leave the place as it is
def races(accesses):
    """The places on which programs race, as a set. accesses: (program, place, "load" or "store" or "atomic"), ..."""
    found = set()
    for program, place, _ in accesses:
        for other, there, _ in accesses:
            if place == there and program != other:
                found.add(place)
    return found
