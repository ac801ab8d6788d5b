"""A GPU's timeline without a GPU: models of how launches, queues and streams behave. SIMULATED time only."""
