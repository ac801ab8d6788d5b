"""The model of communication predicts the step that two ranks on this machine take, from measurements of its parts."""

import network_jobs
from several_ranks import run

import labkit
from labkit.simulate import shared_step
from labkit.simulate.clusters import all_reduce_us


def test_two_ranks_against_the_model(tmp_path, report):
    """Over a slow network, so that the exchange is a good part of the step; see the job.

    The report also has the error of a model without any overlap. The bar does not tell the two models apart: on a busy
    machine with a core for each rank the truth was halfway between them.
    """
    found = run(2, network_jobs.timed, tmp_path)
    step = shared_step(labkit.CycleGAN(**network_jobs.LARGE), size=16)
    whole, computed, link = found["us"]["whole"], found["us"]["computed"], found["network"].inside
    predicted = network_jobs.predicted_us(step, computed, found["durations"], 2, found["network"])
    known = [
        network_jobs.signature(operator) in found["durations"] for operator in step.operators if not operator.is_view
    ]
    in_turn = computed + sum(all_reduce_us(each.bytes, 2, found["network"]) for each in step.collectives)
    report(
        whole_ms=round(whole / 1e3, 1),
        predicted_ms=round(predicted / 1e3, 1),
        computed_ms=round(computed / 1e3, 1),
        latency_us=round(link.latency_us),
        megabytes_per_s=round(link.bytes_per_s / 1e6),
        megabytes=round(step.gradient_bytes / 1e6, 1),
        share_of_operators_measured=round(sum(known) / len(known), 3),
        off=f"{predicted / whole - 1:+.1%}",
        off_without_overlap=f"{in_turn / whole - 1:+.1%}",
    )
    assert sum(known) > 0.95 * len(known), "without durations the model does not know when a bucket is ready"
    assert computed < 0.85 * whole, "the exchange has to matter, or the test shows nothing"
    assert abs(predicted / whole - 1) <= 0.15
