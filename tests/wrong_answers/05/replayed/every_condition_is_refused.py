# expects: clips_where: your answer is 'refused'
replayed = {
    "normalises": "right",
    "clips_if": "refused",
    "clips_where": "refused",
    "decays_number": "stale",
    "decays_tensor": "right",
    "adds_up": "stale",
    "draws_random": "stale",
    "draws_torch": "right",
}
