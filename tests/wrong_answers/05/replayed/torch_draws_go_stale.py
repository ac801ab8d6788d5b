# expects: draws_torch: your answer is 'stale'
replayed = {
    "normalises": "right",
    "clips_if": "refused",
    "clips_where": "right",
    "decays_number": "stale",
    "decays_tensor": "right",
    "adds_up": "stale",
    "draws_random": "stale",
    "draws_torch": "stale",
}
