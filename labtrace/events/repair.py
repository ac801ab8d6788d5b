"""JSON that is not strict, as profilers and other tools have written it, made strict without the loss of an event."""

from __future__ import annotations

import json
import re
from decimal import Decimal

import msgspec

# Python's parser takes NaN, Infinity (unknown times, so null) and control characters, which strict JSON has not.
DECODER = json.JSONDecoder(parse_float=Decimal, parse_constant=lambda _: None, strict=False)
ENCODER = msgspec.json.Encoder(decimal_format="number")
KEY = rb'"[^"\\\n]*"\s*:'
READ = rb'[{",]\s*"(?:ph|cat|pid|tid|ts|dur|args|stream|correlation|External id)"|[",]\s*"name"'
# A text ends before the next key, or the end of its object, and takes in none of the keys that are read. The limit
# keeps the time in proportion to the size of the file.
TEXT = re.compile(rb'(?s)(%b\s*")((?:(?!%b).){0,9999}?)(?="\s*(?:,\s*%b|\}\s*(?:,\s*["{]|[}\]]|$)))' % (KEY, READ, KEY))
NUMBER = re.compile(rb"(%b\s*)[-+]?(?i:nan|inf)\w*(?=\s*[,}])" % KEY)


def strict(text: bytes) -> bytes:
    """The file as strict JSON, its texts escaped where a profiler wrote them as they were, such as C:\\lib.py.

    Raises:
        ValueError: it is no JSON even so, with the place, or not all of its events would be left.
    """
    try:
        sound = ENCODER.encode(DECODER.decode(text.decode()))
    except ValueError:
        repaired = NUMBER.sub(rb"\1null", TEXT.sub(_escaped, text))
        sound = ENCODER.encode(DECODER.decode(repaired.decode()))
    before, after = (each.count(b'"ph"') for each in (text, sound))
    if after < before:
        raise ValueError(f"{before - after} of {before} events cannot be told from their neighbours")
    return sound


def _escaped(found: re.Match[bytes]) -> bytes:
    """A text with the key before it, escaped if it has to be."""
    key, text = found.groups()
    try:
        DECODER.decode(f'"{text.decode()}"').encode()  # half of a surrogate pair cannot be encoded
    except ValueError:
        text = json.dumps(text.decode()).encode()[1:-1]
    return key + text
