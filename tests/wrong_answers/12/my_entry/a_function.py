# expects: the text of an entry is expected
def my_entry(device):
    return None
