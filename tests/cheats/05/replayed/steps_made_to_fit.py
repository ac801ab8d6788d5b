# expects: STEPS is not what its cell above makes of it
STEPS = {name: lambda a, memory: a for name in STEPS}
replayed = dict.fromkeys(STEPS, "right")
