"""Load weights that `labkit export` wrote, and translate: python load_safetensors.py x.safetensors in.jpg out.png"""

import json
import sys

from safetensors import safe_open

import labkit

weights, source, target = sys.argv[1:]
with safe_open(weights, "pt") as file:
    about, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}
model = getattr(labkit, about["kind"])(**json.loads(about["settings"]))  # labkit.CycleGAN or labkit.DeviationGAN
network = model.translator(about["direction"])
network.load_state_dict(tensors)
labkit.translate(network, source, target)
