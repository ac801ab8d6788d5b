# expects: a gain has to be larger
def is_record(seconds, reached, record):
    return sum(reached) >= 4 and statistics.median(seconds) < statistics.median(record)
