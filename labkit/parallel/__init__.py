"""One network on several ranks: each layer shared by all of them (tensor parallel), or layers in turn (a pipeline)."""

from labkit.parallel.pipeline import Pipeline
from labkit.parallel.tensor import split_block, whole

__all__ = ["Pipeline", "split_block", "whole"]
