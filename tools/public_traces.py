"""Bring GPU recordings that others have published into data/traces/public/, thinned and stamped "recorded by others".

    python tools/public_traces.py FOLDER      # with the files that RECORDINGS names, and the licences

All steps are kept, and all that labkit reads: spans with the dimensions and types of operators' inputs, and the arrows
from launches to kernels. Call stacks, launch geometry and the allocator's marks are left out.
"""

import argparse
import datetime
import shutil
from pathlib import Path

import labkit
from labkit.course.shipped import PUBLIC
from labkit.errors import LabkitError
from tools.evidence import BUDGET, kept_of, load, write

KINETO = {
    "recorded_by": "others (PyTorch's profiler team)",
    "device": "Tesla V100-DGXS-32GB",
    "licence": "BSD, see LICENSE.kineto.txt",
}
HTA = {
    "recorded_by": "others (Meta, test data of Holistic Trace Analysis)",
    "licence": "MIT, see LICENSE.hta.txt",
}
SAMPLES = "github.com/pytorch/kineto, tb_plugin/samples"
RESNET50 = "ResNet-50 training, batch 32 of 224 x 224 pictures, float32, SGD with momentum"
TESTS = "github.com/facebookresearch/HolisticTraceAnalysis, tests/data"
RECORDINGS = {  # by the name for `labkit.public_trace`: the file that was published, and the stamp
    "resnet50_workers0": (
        "kineto_resnet50_workers0.json.gz",
        KINETO | {"source": f"{SAMPLES}/resnet50_num_workers_0", "what": f"{RESNET50}, loader without workers"},
    ),
    "resnet50_workers4": (
        "kineto_resnet50_workers4.json.gz",
        KINETO | {"source": f"{SAMPLES}/resnet50_num_workers_4", "what": f"{RESNET50}, loader with four workers"},
    ),
    "v100_nanoseconds": (
        "v100_ns_resolution.json.gz",
        HTA
        | {
            "device": "Tesla V100-SXM2-32GB",
            "source": f"{TESTS}/ns_resolution_trace",
            "what": "a training on one stream, times in nanoseconds",
        },
    ),
    "a100_streams": (
        "trace_diff_control.json.gz",
        HTA
        | {
            "device": "NVIDIA A100-PG509-200",
            "source": f"{TESTS}/trace_diff/control",
            "what": "rank 3 of a training on eight GPUs, on several streams",
        },
    ),
}
LICENCES = ("LICENSE.kineto.txt", "LICENSE.hta.txt")


def bring(folder: Path, target: Path = PUBLIC) -> list[Path]:
    """Writes the recordings of `folder` and their licences to `target`; gives the traces.

    Raises:
        LabkitError: a file is missing in `folder`, is of another device than its stamp, or remains too large.
    """
    if missing := [name for name in _needed() if not (folder / name).is_file()]:
        raise LabkitError(f"{folder}: {', '.join(missing)} not there. Download the originals from {SAMPLES}, {TESTS}.")
    target.mkdir(parents=True, exist_ok=True)
    brought = []
    for name, (original, stamp) in RECORDINGS.items():
        trace = load(folder / original)
        found = trace["deviceProperties"][0]["name"]
        if found != stamp["device"]:
            raise LabkitError(f"{folder / original}: recorded on {found}, and RECORDINGS says {stamp['device']}.")
        spans = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
        first = min(span["ts"] for span in spans)  # microseconds since 1970
        made = {
            "date": datetime.datetime.fromtimestamp(float(first) / 1e6, datetime.UTC).date().isoformat(),
            "steps": len(next(iter(labkit.Trace(folder / original).ranks.values())).steps),
            "thinned": "all steps, without call stacks, launch geometry and the allocator's marks",
        }
        file = target / f"{name}.json.gz"
        write(trace | {"labkit": stamp | made, "traceEvents": kept_of(trace["traceEvents"], spans)}, file)
        if file.stat().st_size > BUDGET:
            raise LabkitError(f"{file}: {file.stat().st_size} bytes, and a shipped trace may have {BUDGET}.")
        brought.append(file)
    for licence in LICENCES:
        shutil.copyfile(folder / licence, target / licence)
    return brought


def _needed() -> list[str]:
    return [*(original for original, _ in RECORDINGS.values()), *LICENCES]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    for file in bring(parser.parse_args().folder):
        print(f"{file}: {file.stat().st_size / 1e6:.2f} MB")
