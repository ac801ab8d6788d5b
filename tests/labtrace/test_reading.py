"""Every way a trace can be damaged: an error that names the file, the cause and the remedy, or a right answer."""

import gzip
import json
import re
import warnings

import pytest
from synthetic_trace import GPU, HOST, SyntheticTrace

from labtrace.errors import LabError, TraceError
from labtrace.events.reading import TraceWarning
from labtrace.trace import Trace

ON_GPU = ("kernel", "gpu_memcpy")


def sound():
    """Two kernels 100-200 and 250-300 with their launches, and a host that also computes."""
    trace = SyntheticTrace().operator("aten::conv2d", 40, 20)
    return trace.launch(50, 100, 100, name="gemm").launch(210, 250, 50, name="relu")


def text(trace=None, **meta):
    return json.dumps({**meta, "traceEvents": (trace or sound()).events})


UNREADABLE = {
    "missing": ("none.json", None, "no such file or folder. Name a trace"),
    "another ending": ("trace.txt", b"{}", ".json or .json.gz"),
    "empty": ("empty.json.gz", b"", "empty"),
    "cut off": ("cut.json.gz", gzip.compress(text().encode())[:-9], "damaged"),
    "nested deeply": ("deep.json", b'{"traceEvents": [' + b"[" * 100_000, "no JSON"),
    "a list of something else": ("list.json", b'[{"loss": 1}]', 'no list of "traceEvents"'),
    "other JSON": ("other.json", b'{"rows": {}}', 'no list of "traceEvents"'),
    "JAX": ("jax.json", b'{"traceEvents": [{"ph": "X", "ts": 1, "dur": 5, "args": {"hlo_op": "f"}}]}', "XLA"),
    "xplane": ("vm.xplane.pb", b"\n\x09/host:CPU", "XLA.*xprof"),
    "rocprofv3": ("1_results.json", b'{"rocprofiler-sdk-tool": [{"agents": []}]}', "AMD's rocprof"),
    "rocprof": ("results.json", b'{"traceEvents": [{"ph": "X", "args": {"BeginNs": "9"}}]}', "AMD's rocprof"),
    "Nsight's lines": ("a.json", b'{"Type": 48, "TraceProcessEvent": {}}\n{"Type": 79}', "a report of Nsight"),
    "Nsight": ("a.nsys-rep", b"", "a report of Nsight"),
    "memory": ("memory.raw.json.gz", gzip.compress(b"[[17, 0, 512, 3], [19, 1, -512, 3]]"), 'no list of "traceEvents"'),
    "without categories": ("names.json", text().replace('"cat"', '"kind"').encode(), "5 are events without a category"),
    "a text for arguments": (
        "junk.json", text().replace('"args": {', '"args": "none", "of": {').encode(), "not one that torch.profiler"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "content", "message"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_read_is_named_with_cause_and_remedy(tmp_path, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TraceError, match=f"{re.escape(str(path))}: .*{message}.*[.?]"):
        Trace(path)


# A change to the first of these events, and what the error says.
SENSELESS = {
    "a negative duration": (ON_GPU, dict(dur=-5), "1 of 5 events have a negative duration.* 'gemm'"),
    "begin left out": (ON_GPU, dict(ts=None), "no time, or an infinite"),
    "an endless kernel": (ON_GPU, dict(dur=float("inf")), "no time, or an infinite"),
    "one event of 1970": (ON_GPU, dict(ts=-1.7e15), "days apart.*nanoseconds"),
    "nanoseconds": (ON_GPU, dict(ts=1.7e18), "a century from now. .*nanoseconds.*divide ts and dur by 1000"),
    "a time of 30 digits": (ON_GPU, dict(ts=10**30), "a century from now. "),
    "a correlation of 30 digits": (["cuda_runtime"], dict(args={"correlation": 10**30}), "not one that torch.profiler"),
}


@pytest.mark.parametrize(("categories", "change", "message"), SENSELESS.values(), ids=SENSELESS)
def test_events_without_sense_are_refused(tmp_path, categories, change, message):
    trace = sound()
    next(event for event in trace.events if event["cat"] in categories).update(change)
    with pytest.raises(TraceError, match=f"trace.json: .*{message}"), warnings.catch_warnings():
        warnings.simplefilter("error")
        Trace(trace.save(tmp_path / "trace.json"))


def every(categories, arguments=False, **changes):
    """Changes values of all events in these categories, or of their arguments."""

    def change(trace):
        for event in trace.events:
            if event["cat"] in categories:
                changed = event["args"] if arguments else event
                changed |= {name: of(changed[name]) for name, of in changes.items()}

    return change


# What does no harm: the GPU was idle for 50 of 200 us, 14 of them for the host, whatever is done to the file.
HARMLESS = {
    "out of order": lambda trace: trace.events.reverse(),
    "each event twice": lambda trace: trace.events.extend(trace.events[:]),
    "names of every script": every(["kernel"], name=lambda _: "ядро 核 \U0001f600\u202e\x00"),
    "no name": every(["kernel"], name=lambda _: None),
    "an operator that overlaps its neighbour": lambda trace: trace.operator("aten::relu", 50, 500),
    "an operator on a stream in words": lambda trace: trace.operator("triton", 60, 5, stream="default"),
    "a range that looks like GPU work": lambda trace: trace.range("ProfilerStep#x", 0, 900),
    "no operators": lambda trace: trace.events.pop(0),  # the only one
    "a rank that is no number": lambda trace: trace.meta.update(distributedInfo={"rank": "first"}),
    "correlations as fractions": every([*ON_GPU, "cuda_runtime"], True, correlation=float),
    "streams as texts": every(ON_GPU, True, stream=str),
    "times as texts": every([*ON_GPU, "cuda_runtime"], ts=str, dur=str),
    "threads as texts": every(["cpu_op"], tid=str, pid=str),
    "a wait on a stream": lambda trace: trace.event("cuda_sync", "Stream Sync", 120, 500, GPU, 7, stream=7, device=0),
    "counters beside the kernels": lambda trace: trace.event("cuda_profiler_range", "__autorange__", 0, 500),
    "a mark of no duration": lambda trace: trace.event("overhead", "Buffer Flush", 30, None),
    "arrows": lambda trace: trace.events.extend({"ph": p, "cat": "ac2g", "id": 1, "ts": 60} for p in "sf"),
    "half an event": lambda trace: trace.events.append({"ph": "B", "cat": "cpu_op", "name": "a", "tid": 1, "ts": 60}),
    "a stamp that is none": lambda trace: trace.meta.update(distributedInfo=[1]),
    "a stamp of labkit that is none": lambda trace: trace.meta.update(labkit="yes", deviceProperties={"name": "V100"}),
    "properties of no device": lambda trace: trace.meta.update(deviceProperties=[3], labkit={"device": None}),
}


@pytest.mark.parametrize("change", HARMLESS.values(), ids=HARMLESS)
def test_what_does_no_harm_is_answered_rightly(tmp_path, change):
    trace = sound()
    change(trace)
    opened = Trace(trace.save(tmp_path / "trace.json"))
    times = opened.temporal().set_index("part")["us"]
    assert times["wall"] == 200 and times["busy"] == 150 and times["idle"] == 50
    causes = opened.idle().set_index(["scope", "cause"])["us"]["device"]
    assert causes.to_dict() == {"host_wait": 14, "kernel_wait": 0, "other": 36, "unknown": 0}
    assert opened.summary()[["idle_of_wall", "compute_of_busy"]].iloc[0].tolist() == [0.25, 1]
    for table in (opened.gaps, opened.kernels, opened.queue, opened.concurrency, opened.operators):
        assert table() is not None


def test_a_folder_leaves_out_json_that_is_no_trace_and_says_so(tmp_path):
    sound().save(tmp_path / "a.json")
    (tmp_path / "settings.json").write_text('{"batch_size": 4}')
    with pytest.warns(TraceWarning, match="Left out of the folder: .*settings.json: JSON, but no trace"):
        assert list(Trace(tmp_path).ranks) == [0]
    (tmp_path / "a.json").unlink()
    with pytest.raises(TraceError, match="settings.json: JSON, but no trace"):
        Trace(tmp_path)


@pytest.mark.parametrize("rank", ["3", 3, 3.0, " 3 "])
def test_a_rank_and_their_number_are_read_however_they_are_written(tmp_path, rank):
    trace = sound()
    trace.meta["distributedInfo"] = {"rank": rank, "world_size": rank}
    opened = Trace(trace.save(tmp_path / "trace.json"))
    assert list(opened.ranks) == [3] and opened.communication()["ranks"].item() == "1 of 3"
    with pytest.raises(LabError, match="no rank 0 in this trace. Choose among 3"):
        opened.ranks[0]


OF_TWO_RANKS = [("rank0", "rank1"), ("crank4", "trace-RANK-1"), ("t_rank_1_of_2.pt.trace", "worker7")]


@pytest.mark.parametrize("names", OF_TWO_RANKS)
def test_a_file_that_does_not_tell_its_rank_has_that_of_its_name(tmp_path, names):
    trace = sound()
    del trace.meta["distributedInfo"]
    for name in names:
        trace.save(tmp_path / f"{name}.json.gz")
    assert list(Trace(tmp_path).ranks) == [0, 1]


ABOUT = {"name": "process_name", "pid": 1, "args": {"name": "Python"}, "ph": "M"}  # arguments first, as Ascend's
READ = {
    "a bare list of events": ("list.json", json.dumps([ABOUT, *sound().events]).encode()),
    "packed, whatever its name is": ("packed.json", gzip.compress(text().encode())),
    "plain, whatever its name is": ("plain.json.gz", text().encode()),
}


@pytest.mark.parametrize(("name", "content"), READ.values(), ids=READ)
def test_a_file_is_read_by_its_content(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert Trace(tmp_path / name).temporal().set_index("part")["us"]["idle"] == 50


@pytest.mark.parametrize("offset", [1615207264001000, 1000], ids=["since 1970", "since the first event"])
def test_kernels_without_a_time_are_left_out_and_counted(tmp_path, offset):
    trace = sound()
    for number in range(3):
        trace.kernel(-offset, 5 * number, trace.call(20))
    for event in trace.events:
        event["ts"] += offset
    found = Trace(trace.save(tmp_path / "trace.json"))
    assert found.temporal().set_index("part")["us"]["wall"] == 200 and found.kernels()["count"].sum() == 2
    assert found.audit()[["what", "events"]].iloc[0].tolist() == ["events without a time (ts is 0): left out", 3]


def data_parallel(host_of_second=HOST):
    """One process, two GPUs: stream 7 of each is busy 100-200, and of the second also 300-350."""
    trace = SyntheticTrace().launch(50, 100, 100)
    for begin, duration in ((100, 100), (300, 50)):
        correlation = next(trace.correlations)
        where = dict(pid=host_of_second, tid=HOST + 1)
        trace.event("cuda_runtime", "cudaLaunchKernel", begin - 20, 4, **where, correlation=correlation)
        trace.event("kernel", "gemm", begin, duration, pid=1, tid=7, stream=7, correlation=correlation)
    trace.call(400, 10, "cudaDeviceSynchronize")  # of one of them
    return trace


def test_each_gpu_of_a_process_is_a_rank(tmp_path):
    trace = Trace(data_parallel().save(tmp_path / "trace.json"))
    parts = trace.temporal().pivot_table("us", "rank", "part")
    assert parts["busy"].tolist() == [100, 150] and parts["idle"].tolist() == [0, 100]
    assert trace.audit().empty, "what was launched on the other GPU is not lost"
    assert all(rank.kernels["call"].ge(0).all() for rank in trace.ranks.values())
    assert trace.operators().groupby("rank")["count"].sum().tolist() == [4, 4]


def test_a_gpu_that_a_process_hardly_used_has_no_verdict(tmp_path):
    trace = SyntheticTrace().launches(50, 0, 10, 100, every=10, gpu_every=100)
    correlation = trace.call(20)
    trace.event("gpu_memset", "Memset (Device)", 30, 1, pid=1, tid=7, stream=7, correlation=correlation)
    busy, idle = Trace(trace.save(tmp_path / "trace.json")).summary().to_dict("records")
    assert busy["bound_by"] == "compute" and idle["bound_by"] == "unknown"
    assert idle["verdict"] == "This GPU was in use for under 1% of the recording: it bounds nothing."


def test_gpus_of_several_processes_in_one_file_are_refused(tmp_path):
    with pytest.raises(TraceError, match="trace.json: several GPUs and processes in one file"):
        Trace(data_parallel(host_of_second=1).save(tmp_path / "trace.json"))


def test_folders_without_a_trace_or_with_two_of_one_rank(tmp_path):
    with pytest.raises(TraceError, match=f"{re.escape(str(tmp_path))}: .*empty.*labtrace watch"):
        Trace(tmp_path)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(TraceError, match=f"{re.escape(str(tmp_path))}: no trace"):
        Trace(tmp_path)
    sound().save(tmp_path / "a.json")
    (tmp_path / "._a.json").write_bytes(b"\0\5\26\7")  # of macOS
    assert list(Trace(tmp_path).ranks) == [0]
    sound().save(tmp_path / "b.json")
    with pytest.raises(TraceError, match="a.json and .*b.json: .*rank 0"):
        Trace(tmp_path)
