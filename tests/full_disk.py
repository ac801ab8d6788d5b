"""A full disk, for tests of what writes files."""

import contextlib
import resource


@contextlib.contextmanager
def files_no_larger_than(size):
    """As on a disk with so little room: a write beyond is refused, or cut."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
