from labkit.sweeps.sweep import table as table
