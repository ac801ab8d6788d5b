"""Damage to a trace's JSON, each kind in each key and layout: all events are read, or the error says what was lost."""

import gzip
import json
import re
import time

import pytest
from synthetic_trace import HOST, SyntheticTrace

from labtrace.errors import TraceError
from labtrace.events.reading import read_file
from labtrace.events.repair import strict

PLACE = "PLACE"  # of the damage, in a text
NUMBER = 777.25  # of the damage, in place of a number


def recording():
    """Three launches with all that Kineto writes beside them, and the file's other entries."""
    gpus = [{"id": number, "name": f"NVIDIA {name}", "numSms": 80} for number, name in enumerate("XY")]
    trace = SyntheticTrace(deviceProperties=gpus, host_name="node")
    named = {"ph": "M", "name": "thread_name", "pid": HOST, "tid": HOST, "ts": 0, "args": {"name": "thread 1"}}
    trace.events.append(named)
    trace.range("ProfilerStep#1", 0, 900)
    for begin in (100, 300, 500):
        trace.operator("aten::mm", begin, 60, **{"Input type": ["float", ""], "Input Dims": [[2, 2], []]})
        trace.event("python_function", "train.py(3): step", begin + 2, 50, **{"Call stack": "a.py(1): f;b.py(2): g"})
        trace.launch(begin + 10, begin + 80, 50)
        for call in trace.events[-1:-3:-1]:  # Kineto's arrow after the call, and after the kernel
            ends = {"ph": "s" if call["cat"] == "kernel" else "f", "id": call["args"]["correlation"]}
            place = {"pid": call["pid"], "tid": call["tid"], "ts": call["ts"]}
            trace.events.insert(trace.events.index(call) + 1, {**ends, **place, "cat": "ac2g", "name": "ac2g"})
    return trace.events, trace.meta, {"traceName": "/runs/trace.json"}


def compact(events, about, end):
    """As Kineto wrote it in 2021."""
    return json.dumps({**about, "traceEvents": events, **end}, separators=(",", ":"))


def by_python(events, about, end):
    return json.dumps({**about, "traceEvents": events, **end})


def in_lines(between):
    """As Kineto wrote it from 2022 to 2025, several keys in a line, and since then, each in its own line."""

    def members(of, between=", "):
        return between.join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in of.items())

    def write(events, about, end):
        entries = []
        for event in events:
            args = event.get("args")
            own = members({key: value for key, value in event.items() if key != "args"}, between)
            inner = f',\n    "args": {{\n      {members(args)}\n    }}' if args else ""
            entries.append(f"  {{\n    {own}{inner}\n  }}")
        head = ",\n  ".join(members({key: value}) for key, value in about.items())
        return f'{{\n  {head},\n  "traceEvents": [\n' + ",\n".join(entries) + f"\n  ],{members(end)} }}\n"

    return write


LAYOUTS = {"2021": compact, "2022": in_lines(", "), "2026": in_lines(",\n    "), "Python": by_python}


def of_event(category, key, ph="X"):
    """Where a value of the last event of a category is."""

    def place(events, about, end):
        event = [one for one in events if one.get("cat") == category and one["ph"] == ph][-1]
        return (event["args"], key[5:]) if key.startswith("args ") else (event, key)

    return place


EVENTS = ("kernel", "cuda_runtime", "cpu_op", "python_function", "user_annotation")
TEXTS = {
    **{f"{key} of {category}": of_event(category, key) for category in EVENTS for key in ("name", "cat")},
    "name of an arrow": of_event("ac2g", "name", "s"),
    "cat of an arrow": of_event("ac2g", "cat", "f"),
    "args, a text": of_event("python_function", "args Call stack"),
    "args, a text in a list": lambda *parts: (of_event("cpu_op", "args")(*parts)[0]["args"]["Input type"], 0),
    "name of a thread": lambda events, about, end: (events[0]["args"], "name"),
    "metadata, a text": lambda events, about, end: (about, "host_name"),
    "deviceProperties, name": lambda events, about, end: (about["deviceProperties"][0], "name"),
    "traceName at the file's end": lambda events, about, end: (end, "traceName"),
}
NUMBERS = {
    **{f"{key} of {category}": of_event(category, key) for category in EVENTS for key in ("pid", "tid", "ts", "dur")},
    "stream of kernel": of_event("kernel", "args stream"),
    "correlation of kernel": of_event("kernel", "args correlation"),
    "ts of an arrow": of_event("ac2g", "ts", "s"),
    "metadata, a number": lambda events, about, end: (about, "schemaVersion"),
    "deviceProperties, numSms": lambda events, about, end: (about["deviceProperties"][1], "numSms"),
}
# What stands in the file in place of a text, or of a number.
IN_TEXT = {
    "raw newline": b'"%b\n(1): f"',
    "raw tab": b'"%b\tf"',
    "control character": b'"%b\x01f"',
    "NUL": b'"%b\x00f"',
    "quotes": b'"%b("f", "g")"',
    "a dictionary": b'"{"device": "cpu"}(3): %b"',
    "a dictionary of two": b'"{"a": "b", "c": 3}(3): %b"',
    "lone backslashes": b'"C:\\users\\%b"',
    "a backslash at the end": b'"%b\\"',
    "half an escape": b'"\xcf\x80%b\\u12"',
    "half a surrogate pair": b'"%b\\ud83d"',
    "invalid UTF-8": b'"%b\xff"',
    "no quote at the end": b'"%b',
    "no quote at the begin": b'%b"',
}
IN_NUMBER = {
    **{text: text.encode() for text in ("NaN", "Infinity", "-Infinity", "nan", "inf", "-inf", "-nan", "1.#QNAN")},
    "no number": b"",
    "decimal comma": b"1,5",
    "hexadecimal": b"0x1f",
}
# What is done to the bytes before a value, the value, and those after it.
AROUND = {
    "cut off": lambda before, value, after: before + value,
    "trailing comma": lambda before, value, after: before + value + b"," + after,
    "missing comma": lambda before, value, after: before + value + after.replace(b",", b"", 1),
    "missing colon": lambda before, value, after: before[::-1].replace(b":", b"", 1)[::-1] + value + after,
    "missing brace at the end": lambda before, value, after: before + value + after.replace(b"}", b"", 1),
    "one brace more at the end": lambda before, value, after: before + value + after.replace(b"}", b"}}", 1),
    "missing brace at the begin": lambda before, value, after: before[::-1].replace(b"{", b"", 1)[::-1] + value + after,
    "missing bracket": lambda before, value, after: before + value + after.replace(b"]", b"", 1),
}


def damaged(layout, place, kind):
    """The bytes of a recording with this damage at this place."""
    parts = recording()
    holder, key = place(*parts)
    original = holder[key]
    is_text = isinstance(original, str)
    holder[key] = f"{PLACE}{original}" if is_text else NUMBER
    before, _, after = LAYOUTS[layout](*parts).encode().partition(json.dumps(holder[key]).encode())
    if kind in AROUND:
        return AROUND[kind](before, json.dumps(original).encode(), after)
    return before + (IN_TEXT[kind] % original.encode() if is_text else IN_NUMBER[kind]) + after


TRIALS = [(name, place, kind) for name, place in TEXTS.items() for kind in (*IN_TEXT, *AROUND)]
TRIALS += [(name, place, kind) for name, place in NUMBERS.items() for kind in (*IN_NUMBER, *AROUND)]
REFUSED = {*AROUND, "no quote at the end", "no quote at the begin", "a dictionary of two", "1.#QNAN", "no number",
           "decimal comma", "hexadecimal"}  # fmt: skip
# It is refused with the place or with what is gone: the brace at the begin, or a time that no table can do without.
WHERE = r"no JSON, or cut off \(.*(?:line \d+ column|position) \d+.*\)\. None of its events is read\. Record it again"
BEGIN, TIME = 'no list of "traceEvents" in it', "1 of 14 events have no time"
SHOWN = [f"name of {category}" for category in EVENTS]
OF_PYTHON = {"raw newline", "raw tab", "control character", "NUL", "invalid UTF-8"}  # what its parser reads in a list


def column(name, kind):
    """What of an event may differ after damage in this key: the shapes of an operator are known by its name."""
    if name == "args, a text in a list":
        return {"inputs"}
    key = {"dur": "duration", "cat": "category"}.get(name.split()[0], name.split()[0])
    return {key, "end"} if key in ("begin", "duration") else {key, "inputs"} if key == "name" else {key}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_event_is_kept_or_an_error_says_what_is_lost(tmp_path, layout):
    paths = [tmp_path / "trace.json", tmp_path / "trace.json.gz"]
    whole = LAYOUTS[layout](*recording()).encode()
    paths[0].write_bytes(whole)
    sound = read_file(paths[0]).events
    for number, (name, place, kind) in enumerate(TRIALS):
        text, path = damaged(layout, place, kind), paths[number % 2]
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
        what = f"{kind} in {name}, {layout}"
        time_lost = kind in IN_NUMBER and name.startswith(("ts of", "dur of")) and "arrow" not in name
        in_a_list = name == "args, a text in a list" and kind not in OF_PYTHON
        try:
            found = read_file(path)
        except TraceError as error:
            assert kind in REFUSED or time_lost or in_a_list, f"{what}: {error}"
            lost = TIME if time_lost and kind not in REFUSED else f"{WHERE}|{BEGIN}"
            assert re.search(lost, str(error)), f"{what}: {error}"
            continue
        assert text == whole or kind not in REFUSED, what
        if name in SHOWN and kind in IN_TEXT:
            written = IN_TEXT[kind][1:-1] % place(*recording())[0]["name"].encode()
            assert written.decode(errors="replace") in set(found.events["name"]), what
        left_out = found.left_out["events without a time or a duration"]
        assert left_out == (time_lost and "python" in name) and len(found.events) + left_out == len(sound), what
        for each in sound.columns.difference([*column(name, kind)]) if not left_out else ():
            assert found.events[each].equals(sound[each]), f"{what}: another {each}"


@pytest.mark.parametrize("entry", ['"x": NaN,', ""], ids=["beside NaN", "beside a raw text"])
def test_events_that_run_into_one_another_are_not_read_as_one(tmp_path, entry):
    """Python's parser takes an object that has a key twice."""
    text = by_python(*recording()).replace('"schemaVersion": 1,', f'"schemaVersion": 1, {entry}')
    text = text.replace('"ac2g"}, {"ph": "X"', '"ac2g", "ph": "X"', 1)
    if not entry:
        text = text.replace("node", "C:\\users\\node")
    (tmp_path / "trace.json").write_text(text)
    with pytest.raises(TraceError, match="1 of 21 events cannot be told from their neighbours"):
        read_file(tmp_path / "trace.json")


def test_the_time_of_a_repair_grows_with_the_size_and_not_with_its_square():
    events, about, end = recording()
    seconds = []
    for times in (1, 8):
        text = damaged("2022", TEXTS["name of kernel"], "lone backslashes")
        many = json.dumps(events * 150 * times)[1:-1].replace("train.py", "C:\\users\\train.py").encode()
        text = text.replace(b'"traceEvents": [', b'"traceEvents": [' + many + b",")
        start = time.process_time()
        strict(text)
        seconds.append(time.process_time() - start)
    assert seconds[1] < 3 * 8 * seconds[0]
