# expects: Four of five seeds are enough
def is_record(seconds, reached, record):
    noise = max(record) - min(record)
    return all(reached) and statistics.median(seconds) < statistics.median(record) - noise
