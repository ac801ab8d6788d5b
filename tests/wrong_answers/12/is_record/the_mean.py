# expects: The median counts, not the mean
def is_record(seconds, reached, record):
    noise = max(record) - min(record)
    return sum(reached) >= 4 and statistics.mean(seconds) < statistics.median(record) - noise
