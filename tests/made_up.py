"""Results that nobody measured: learning curves, and heats of the speedrun."""

import pandas

from labcourse.speedrun import Heat


def curve(name, seed, scores):
    """Looks after 100, 200... pictures, each 10 seconds, with these pairs of fg and bg."""
    rows = [
        {"name": name, "seed": seed, "images": 100 * i, "seconds": 10.0 * i, "flops": 1e12 * i, "fg": fg, "bg": bg}
        for i, (fg, bg) in enumerate(scores, start=1)
    ]
    return pandas.DataFrame(rows)


def heats(seconds, fg=8.0):
    """A heat of so many seconds for each of the seeds."""
    look = dict(share=1.0, fg=fg, bg=2.0, changed=0.0)
    return [Heat(seed, "rgb", one, one, one, [look | {"cpu_seconds": one}]) for seed, one in enumerate(seconds)]
