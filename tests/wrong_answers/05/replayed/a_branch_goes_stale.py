# expects: clips_if is not stale: one of its lines asks for a tensor's value
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
