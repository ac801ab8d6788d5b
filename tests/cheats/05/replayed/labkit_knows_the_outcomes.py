# expects: `outcome` has no business
from labkit.course.stand_ins import outcome

replayed = {name: outcome(step) for name, step in STEPS.items()}
