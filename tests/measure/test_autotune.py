"""The speed-ups that are chosen for a run: tried one on top of the other, within their time, and kept."""

import copy
import functools
import math

import pandas
import pytest
import torch

import labkit
from labkit.measure import autotune as choosing


@pytest.fixture
def tried(monkeypatch):
    """A function that sets how long steps take with each speed-up, alone, and what it gains; the stacks timed."""

    def gaining(took, wrong=(), **gains):
        stacks = []

        def of(step):
            return [one.name for one in type(step).__mro__ if "name" in vars(one)]

        def alternate(calls, rounds, warmup, clock):
            stacks.append(of(calls["with"].func))
            return {"without": [gains[max(stacks[-1], key=[*gains].index)]], "with": [1.0]}

        def compare(makers, batch, rounds, limit_s):
            verdict = "not equivalent" if {*wrong} & {*of(makers["chosen"]())} else "faster"
            return pandas.DataFrame({"verdict": verdict, "why": "why"}, index=["chosen"])

        monkeypatch.setattr(choosing, "alternate", alternate)
        monkeypatch.setattr(choosing, "compare", compare)
        monkeypatch.setattr(choosing, "candidates", lambda make: ([*took], []))
        monkeypatch.setattr(choosing, "seconds_of", lambda step, batch: took.get(getattr(type(step), "name", ""), 1.0))
        return stacks

    return gaining


def test_speedups_are_stacked_as_long_as_they_help(tiny, batch, tried):
    stacks = tried(
        {"bf16": 0.5, "batched": 0.6, "fused_adam": 0.7, "out_of_place": 2.5}, bf16=1.4, batched=1.02, fused_adam=0.9
    )
    names, said = labkit.autotune(tiny, batch())
    assert names == ["bf16", "batched"]
    assert [set(stack) for stack in stacks] == [{"bf16"}, {"bf16", "batched"}, {"bf16", "batched", "fused_adam"}]
    told = dict(line.split(": ", 1) for line in said)
    assert told["bf16"] == "chosen, 1.40 times as fast on top of the baseline"
    assert told["fused_adam"] == "left out, 0.90 times as fast on top of bf16, batched"
    assert told["out_of_place"] == "left out, slower: its second update took 2.5 times as long"


@pytest.mark.parametrize("wrong, left", [(["bf16"], ["batched"]), (["batched", "bf16"], []), ([], ["bf16", "batched"])])
def test_what_computes_something_else_goes_at_the_end(tiny, batch, tried, wrong, left):
    tried({"bf16": 0.5, "batched": 0.6}, wrong, bf16=1.4, batched=1.1)
    names, said = labkit.autotune(tiny, batch())
    assert names == left
    assert {f"{name}: left out after all, not equivalent: why" for name in wrong} <= {*said}


def test_what_changes_nothing_or_is_slower_together_is_left_out(tiny, batch, monkeypatch, tried):
    small = tiny(generator="resnet_3blocks")
    monkeypatch.setattr(choosing, "candidates", lambda make: (["winograd"], []))
    names, said = labkit.autotune(lambda: copy.deepcopy(small), batch(size=64))
    assert names == [] and "too few to gain, so it changes nothing" in said[0]
    tried({"bf16": 0.5}, bf16=1.4)
    slower = pandas.DataFrame({"verdict": "slower", "why": "why"}, index=["chosen"])
    monkeypatch.setattr(choosing, "compare", lambda *_, **__: slower)
    assert labkit.autotune(tiny, batch())[0] == []


def test_a_close_call_gets_a_second_try(tiny, batch, tried):
    stacks = tried({"bf16": 0.5, "batched": 0.6}, bf16=1.0, batched=1.4)
    names, said = labkit.autotune(tiny, batch())
    assert [set(stack) for stack in stacks] == [{"bf16"}, {"batched"}, {"bf16", "batched"}]
    assert names == ["batched", "bf16"] and said[0] == "bf16: left out, 1.00 times as fast on top of the baseline"


def test_a_stack_that_does_not_run_is_left_out(tiny, batch, monkeypatch, tried):
    tried({"bf16": 0.5, "batched": 0.6}, bf16=1.4)

    def alternate(calls, rounds, warmup, clock):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(choosing, "alternate", alternate)
    names, said = labkit.autotune(tiny, batch())
    assert names == [] and said == [
        f"{name}: left out, does not run on top of the baseline: out of memory" for name in ("bf16", "batched")
    ]


def test_when_the_time_is_over_it_chooses_from_what_it_has(tiny, batch, monkeypatch, tried):
    seconds = iter([*[0.0] * 8, *[55.0] * 9])  # the first one's rounds take 55 of 60
    monkeypatch.setattr(choosing.time, "perf_counter", lambda: next(seconds))
    stacks = tried({"bf16": 1.0, "batched": 1.0}, bf16=1.4)
    names, said = labkit.autotune(tiny, batch(), limit_s=60)
    assert names == ["bf16"] and len(stacks) == 1
    assert said[-1].startswith("batched: not tried, since 60 s are over")


def test_what_batch_norm_rules_out_is_not_tried(tiny):
    names, said = choosing.candidates(functools.partial(tiny, norm="batch"))
    assert {"fused_adam", "out_of_place"} <= {*names} and not {"batched", "nhwc"} & {*names}
    assert any("batched: not tried" in line for line in said)


@pytest.mark.parametrize("limit_s, side", [(0, 64), (1000, 128)])
def test_slow_steps_are_measured_with_a_corner_of_the_pictures(tiny, batch, limit_s, side):
    said = []
    smaller = choosing.corner(labkit.make_step(tiny()), batch(size=128), limit_s, said)
    assert [pictures.shape for pictures in smaller] == [(1, 3, side, side)] * 2
    reason = "auto: measured with 64x64 pixels of each picture, since with all of them it takes long"
    assert said == [reason][: side < 128]


def test_networks_that_need_whole_pictures_are_measured_with_them(tiny, batch):
    step, pictures, said = labkit.make_step(tiny(generator="unet_128")), batch(size=128), []
    assert choosing.corner(step, pictures, 0, said) is pictures and not said


def test_a_run_keeps_the_choice_of_its_beginning(tiny, batch, monkeypatch, tmp_path):
    monkeypatch.setattr(choosing, "autotune", lambda *_: (["bf16"], ["bf16: chosen"]))
    first = choosing.remembered(tmp_path, tiny, batch())
    assert first == (["bf16"], ["bf16: chosen", "auto: bf16"])
    monkeypatch.setattr(choosing, "autotune", lambda *_: (["batched"], []))
    names, said = choosing.remembered(tmp_path, tiny, batch())
    assert names == ["bf16"] and "chosen when this run began" in said[0]
    monkeypatch.setattr(choosing, "stamp", lambda: {"device": "another"})
    assert choosing.remembered(tmp_path, tiny, batch())[0] == ["batched"]


def test_what_is_cheap_comes_first_and_what_excludes_it_may_take_its_place(tiny, batch, monkeypatch, tried):
    took, clock = {"compile": 0.4, "out_of_place": 0.9, "fused_adam": 0.8}, [0.0]
    stacks = tried(took, fused_adam=1.1, out_of_place=1.2, compile=1.3)
    seconds_of = choosing.seconds_of

    def later(step, batch):
        clock[0] += 30 if getattr(type(step), "name", "") == "compile" else 2
        return seconds_of(step, batch)

    monkeypatch.setattr(choosing, "seconds_of", later)
    monkeypatch.setattr(choosing.time, "perf_counter", lambda: clock[0])
    names, said = labkit.autotune(tiny, batch())
    assert [len(stack) for stack in stacks] == [1, 2, 2] and names == ["fused_adam", "compile"]
    assert said[-1] == "compile: chosen, 1.30 times as fast in the place of out_of_place, on top of fused_adam"


# ---- of a comparison, the fastest that computes the same and fits into the memory

VERDICTS = {"baseline": "baseline", "bf16": "faster", "graph+bf16": "faster", "streams": "not equivalent"}
TABLE = pandas.DataFrame({"verdict": VERDICTS | {"batched": "no difference"}})
TABLE = TABLE.assign(times_faster=[1.0, 2.0, 2.5, 3.0, 4.0], peak_bytes=[8e9, 4e9, 7e9, 4e9, 4e9])


def test_the_fastest_that_is_right_and_fits_is_picked():
    assert choosing.pick(TABLE) == "graph+bf16"
    assert choosing.pick(TABLE, memory_bytes=6e9) == "bf16" and choosing.pick(TABLE, memory_bytes=1e9) == "baseline"
    assert choosing.pick(TABLE.assign(peak_bytes=math.nan), memory_bytes=1e9) == "graph+bf16", "a CPU does not count"
