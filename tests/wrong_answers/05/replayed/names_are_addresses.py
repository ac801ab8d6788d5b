# expects: adds_up: your answer is 'right'
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
