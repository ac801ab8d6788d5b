# expects: clips_if is not stale: what would be old?
replayed = {
    "normalises": "right",
    "clips_if": "stale",
    "clips_where": "right",
    "decays_number": "stale",
    "decays_tensor": "right",
    "adds_up": "stale",
    "draws_random": "stale",
    "draws_torch": "right",
}
