# expects: your answer calls the library's own labtrace.tables.gpu.idle_causes
from labtrace.tables.gpu import idle_causes


def idle_by_cause(launched, begin, end):
    order = np.argsort(begin)
    launched, begin, latest = launched[order], begin[order], np.maximum.accumulate(end[order])
    us = np.maximum(begin[1:] - latest[:-1], 0)
    cause = idle_causes(latest[:-1], begin[1:], launched[1:])
    return {name: float(us[cause == name].sum()) for name in ("host_wait", "kernel_wait", "other")}
