"""Other ways to use several processes than a shared batch.

One network on several ranks: each layer shared by all of them (tensor parallel), or layers in turn (a pipeline). One
model on several ranks: each trains one module (`apart`), or all of it and then the mean is taken (`averaged`).
"""

from labkit.parallel.apart import StalePartnerWarning, apart
from labkit.parallel.averaging import OUTER, averaged
from labkit.parallel.pipeline import Pipeline
from labkit.parallel.tensor import split_block, whole

__all__ = ["OUTER", "Pipeline", "StalePartnerWarning", "apart", "averaged", "split_block", "whole"]
