# expects: decays_number: your answer is 'right'
replayed = {
    "normalises": "right",
    "clips_if": "refused",
    "clips_where": "right",
    "decays_number": "right",
    "decays_tensor": "right",
    "adds_up": "stale",
    "draws_random": "stale",
    "draws_torch": "right",
}
