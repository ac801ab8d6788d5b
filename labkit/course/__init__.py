"""Only the lessons need this: checks of exercises, the ledger of predictions, shipped recordings and studies."""
