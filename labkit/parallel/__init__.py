"""Ways to use several processes that exchange weights now and then, in place of gradients in every step.

Each process trains one module (`apart`), or the whole model, of which the mean is then taken (`averaged`). Programs in
``examples/parallel`` share one network between processes: by channels, or as a pipeline.
"""

from labkit.parallel.apart import StalePartnerWarning, apart
from labkit.parallel.averaging import OUTER, averaged

__all__ = ["OUTER", "StalePartnerWarning", "apart", "averaged"]
