"""What nbgrader reads when a student presses Validate. The files beside it hide its tools for teachers."""

from nbgrader.preprocessors import ClearOutput, DeduplicateIds, Execute
from nbgrader.validator import Validator

# Seconds for a cell: the longest one trains for about 100
c.Execute.timeout = 300
# A copied or split cell is no fault: nbgrader would refuse the notebook, and has no option for it.
Validator.preprocessors.default_args = ([DeduplicateIds, ClearOutput, Execute],)
