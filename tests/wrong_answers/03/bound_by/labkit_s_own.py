# expects: this is labkit's own
from labkit.traces.verdict import bound_by
