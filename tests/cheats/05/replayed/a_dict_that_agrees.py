# expects: `__missing__` has no business
class Agrees(dict):
    def __missing__(self, key):
        return "right"


replayed = Agrees()
