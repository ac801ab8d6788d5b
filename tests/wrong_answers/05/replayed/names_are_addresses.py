# expects: adds_up is not right: what in it does Python do
replayed = {
    "normalises": "right",
    "clips_if": "refused",
    "clips_where": "right",
    "decays_number": "stale",
    "decays_tensor": "right",
    "adds_up": "right",
    "draws_random": "stale",
    "draws_torch": "right",
}
