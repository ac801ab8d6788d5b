"""labkit's networks and training step are those of the public reference, run side by side in float64.

git clone https://github.com/junyanz/pytorch-CycleGAN-and-pix2pix reference
REFERENCE=reference python -m pytest -q benchmarks/test_reference.py
"""

import importlib
import os
import random
import sys
from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch

import labkit

GENERATORS = ("resnet_9blocks", "resnet_6blocks", "unet_256", "unet_128")
DISCRIMINATORS = ("basic", "n_layers", "pixel")
NORMS = ("instance", "batch", "none")
NETWORKS = ("G_A", "G_B", "D_A", "D_B")
OPTIONS = dict(
    input_nc=3,
    output_nc=3,
    ngf=4,
    ndf=4,
    netG="resnet_6blocks",
    netD="basic",
    n_layers_D=2,
    norm="instance",
    no_dropout=True,
    init_type="normal",
    init_gain=0.02,
    lambda_A=10.0,
    lambda_B=5.0,
    lambda_identity=0.5,
    gan_mode="lsgan",
    pool_size=3,
    lr=2e-4,
    beta1=0.5,
    direction="AtoB",
    isTrain=True,
    gpu_ids=[],
    device=torch.device("cpu"),
    checkpoints_dir="checkpoints",
    name="labkit",
    preprocess="none",
)
OURS = dict(
    netG="generator",
    netD="discriminator",
    n_layers_D="n_layers",
    lambda_A="lambda_a",
    lambda_B="lambda_b",
    **{name: name for name in ("ngf", "ndf", "norm", "lambda_identity", "gan_mode", "pool_size")},
)
STEPS, PICTURES = 4, 2  # more fakes than a pool holds, so that it gives some back


def reference_model(**options):
    """The reference's CycleGAN, and its module for pools."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [os.environ["REFERENCE"], *sys.path])
        cyclegan, image_pool = (importlib.import_module(name) for name in ("models.cycle_gan_model", "util.image_pool"))
        patch.setattr(torch.backends.cudnn, "benchmark", False)  # put back afterwards: the reference sets it
        return cyclegan.CycleGANModel(SimpleNamespace(**OPTIONS | options)), image_pool


@pytest.fixture
def pair(monkeypatch):
    """A function that makes a labkit model and the reference's, with the same weights and pools that draw the same."""
    if "REFERENCE" not in os.environ:
        pytest.skip("REFERENCE names no clone of github.com/junyanz/pytorch-CycleGAN-and-pix2pix")

    def make(**options):
        options = {**OPTIONS, **options}
        torch.manual_seed(0)
        ours = labkit.CycleGAN(**{OURS[name]: value for name, value in options.items() if name in OURS}).double()
        theirs, image_pool = reference_model(**options)
        for name in NETWORKS:
            getattr(theirs, f"net{name}").double().load_state_dict(getattr(ours, name).state_dict())
        for name, pool in ours.pools.items():
            their_pool, numbers = getattr(theirs, f"{name}_pool"), random.Random()
            numbers.setstate(pool.random.getstate())

            def query(images, pool=their_pool, numbers=numbers):
                image_pool.random = numbers
                return image_pool.ImagePool.query(pool, images)

            monkeypatch.setattr(their_pool, "query", query)
        return ours, theirs

    return make


def largest_differences(ours, theirs, size):
    """Between the translations of the first step, the losses of all steps, and the networks afterwards."""
    step, numbers = labkit.make_step(ours, lr=OPTIONS["lr"]), torch.Generator().manual_seed(0)
    differences = defaultdict(float)

    def note(kind, one, other):
        assert torch.isfinite(one).all()
        differences[kind] = max(differences[kind], (one - other).abs().max().item())

    for k in range(STEPS):
        a, b = (torch.rand(PICTURES, 3, size, size, generator=numbers, dtype=torch.float64) * 2 - 1 for _ in range(2))
        theirs.set_input({"A": a, "B": b, "A_paths": [], "B_paths": []})
        theirs.optimize_parameters()
        for name, loss in step(a, b).items():
            note("losses", loss, getattr(theirs, f"loss_{name}").detach())
        if k == 0 and ours.pools["fake_B"].size:  # the pool is still empty, and keeps them all
            note("translations", ours.pools["fake_B"].buffer[:PICTURES], theirs.fake_B)
    for name in NETWORKS:
        mine, network = getattr(ours, name), getattr(theirs, f"net{name}")
        for key, value in network.state_dict().items():
            kind = "weights" if key in dict(mine.named_parameters()) else f"statistics of {name}"
            note(kind, mine.state_dict()[key], value)
    return differences


def side(generator):
    return {"unet_256": 256, "unet_128": 128}.get(generator, 64)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("discriminator", DISCRIMINATORS)
@pytest.mark.parametrize("generator", GENERATORS)
def test_all_networks_learn_to_the_bit_what_the_references_do(pair, generator, discriminator, norm):
    differences = largest_differences(*pair(netG=generator, netD=discriminator, norm=norm), side(generator))
    if norm == "batch":  # G_A sees real pictures of B before the fakes of A, and in the reference after them
        assert 0 < differences.pop("statistics of G_A") < 0.02
    assert not any(differences.values()), differences


@pytest.mark.parametrize(
    "options",
    [
        dict(gan_mode="vanilla"),
        dict(gan_mode="wgangp"),
        dict(lambda_identity=0.0, norm="batch"),
        dict(lambda_A=3.0, lambda_B=7.0, lambda_identity=0.25),
        dict(pool_size=0),
        dict(netD="n_layers", n_layers_D=1),
        dict(netD="n_layers", n_layers_D=5, ndf=2),
    ],
    ids=str,
)
def test_so_it_is_with_other_losses_and_pools(pair, options):
    differences = largest_differences(*pair(**options), 128)
    if options == dict(gan_mode="vanilla"):  # the reference's targets are float32, and round this loss to float32
        assert differences.pop("losses") < 1e-6
    assert not any(differences.values()), differences
