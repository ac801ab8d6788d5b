"""Every speed-up, alone and in every legal pair, is the baseline at its stated tolerance."""

import copy
import functools
import itertools
import types
import warnings

import pytest
import torch
from killing import same
from nhwc_formulas import instead_of_kernels
from tiny import assert_close

import labkit
from labkit import devices
from labkit.measure.autotune import candidates
from labkit.measure.same import Update
from labkit.simulate import step_operators
from labkit.variants import winograd
from labkit.variants.registry import SPEEDUPS as KNOWN

EMULATES = devices.emulates  # as it is: tests have another in its place


@pytest.fixture(autouse=True)
def kernels_for_small_pictures(monkeypatch):
    monkeypatch.setattr(winograd, "PIXELS", 0)
    monkeypatch.setattr(winograd, "NUMBERS", 0)


def exact(names):
    return all(KNOWN[name].tolerance == "exact" for name in names)


def legal(names):
    return not any(other in KNOWN[name].excludes for name in names for other in names)


def largest(known):
    """The legal stacks to which none of `known` can be added: every legal pair is part of one of them."""
    stacks = (names for n in range(1, len(known) + 1) for names in itertools.combinations(known, n) if legal(names))
    return [names for names in stacks if not any(legal((*names, name)) for name in known if name not in names)]


# In one process: pairs with data_parallel are in test_data_parallel.py.
ACTING = [name for name in KNOWN if name != "data_parallel"]
EXACT = [name for name in ACTING if exact([name])]
IDLE = {"streams", "data_parallel"}  # without a GPU or other ranks, where they are the baseline
ALONE = [(name,) for name in KNOWN if name not in IDLE]
# To compile takes seconds, so that `compile` meets the others in the largest stacks only.
PAIRED = [name for name in ACTING if name not in {"compile", *IDLE}]
PAIRS = [names for names in itertools.combinations(PAIRED, 2) if legal(names)]
LARGEST = largest(EXACT) + largest(ACTING)


def tiers(stacks):
    """Pairs, and stacks that take seconds, are in the slow tier: compiled, in fp16, or in bf16 together with others."""
    dear = [one for one in stacks if len(one) == 2 or {"compile", "fp16"} & {*one} or not (len(one) == 1 or exact(one))]
    return [pytest.param(one, id="+".join(one), marks=[pytest.mark.slow] * (one in dear)) for one in stacks]


pytestmark = [
    pytest.mark.filterwarnings("ignore:(streams|graph|data_parallel)"),
    pytest.mark.usefixtures("quick_compiler"),
]


@pytest.fixture(autouse=True)
def quick_kernels(monkeypatch):
    """Lets nhwc act here: test_nhwc.py runs its kernels, in Triton's slow interpreter."""
    instead_of_kernels(monkeypatch)


def make(tiny, names, *own, like=None, **settings):
    """A step with these speed-ups, always from the same weights; small and in float64 if they (or `like`) are exact."""
    settings["pool_size"] = 3
    model = tiny(**settings).double() if exact(like or names) else tiny(**settings, ngf=8, ndf=8)
    return labkit.make_step(model, *own, *names)


def pictures(batch, names, n=2, seed=0):
    """A batch for `make`; as large as 16-bit rounding asks for."""
    size, dtype = (16, torch.float64) if exact(names) else (32, torch.float32)
    return batch(n, size=size, seed=seed, dtype=dtype)


@functools.cache
def baseline(tiny, batch, like, n):
    """Losses of the baseline's first steps on batches of `n`, and its `Update`."""
    step = make(tiny, (), like=like)
    first = Update.of(step, pictures(batch, like, n))
    losses = [first.losses]
    steps = 10 if exact(like) else 6
    losses += [step(*pictures(batch, like, n, seed)) for seed in range(1, steps)]
    return losses, first


def expected(tiny, batch, names, n=2):
    return baseline(tiny, batch, ("streams",) if exact(names) else ("bf16",), n)


@pytest.mark.parametrize("names", tiers([*(one for one in ALONE if one != ("compile",)), *PAIRS, *LARGEST]))
def test_losses_and_gradients_of_the_first_step_are_the_baseline_s(tiny, batch, names):
    _, right = expected(tiny, batch, names)
    distance = Update.of(make(tiny, names), pictures(batch, names)).distance(right)
    if exact(names):
        assert distance.losses <= 1e-10 and distance.gradients <= 1e-10
    else:
        assert distance.losses <= 1e-2 and distance.cosine >= 0.9


EXACT_ALONE = [names for names in ALONE if exact(names)]
ON_ONE_PICTURE = largest([name for name in EXACT if name != "accumulate"])


@pytest.mark.parametrize("names", tiers([*EXACT_ALONE, *largest(EXACT), *ON_ONE_PICTURE]))
def test_in_float64_exact_speedups_stay_the_baseline(tiny, batch, names):
    n = 2 if "accumulate" in names else 1  # one picture is what a memory format can go wrong with
    step = make(tiny, names)
    losses, _ = expected(tiny, batch, names, n)
    for seed, right in enumerate(losses):
        assert_close(step(*pictures(batch, names, n, seed)), right, 1e-9, seed)


@pytest.mark.parametrize("mode", ["vanilla", "wgangp"])
@pytest.mark.parametrize("names", largest([name for name in EXACT if name != "compile"]), ids="+".join)
def test_exact_speedups_are_the_baseline_in_every_gan_mode(tiny, batch, names, mode):
    right, step = make(tiny, (), gan_mode=mode), make(tiny, names, gan_mode=mode)
    distance = Update.of(step, pictures(batch, names)).distance(Update.of(right, pictures(batch, names)))
    assert distance.losses <= 1e-10 and distance.gradients <= 1e-10
    assert_close(step(*pictures(batch, names, seed=1)), right(*pictures(batch, names, seed=1)), 1e-9, mode)


SOME_PAIRS = [("streams", "bf16"), ("accumulate", "channels_last"), ("recompute", "fp16")]


@pytest.mark.parametrize("names", tiers([*ALONE, *SOME_PAIRS]))
def test_a_run_goes_on_under_other_speedups_and_back(tiny, batch, names):
    losses, _ = expected(tiny, batch, names)
    plain, other = make(tiny, (), like=names), make(tiny, names)
    for seed, step in enumerate([plain, plain, other, other, plain, plain]):
        if seed in (2, 4):
            step.load_state_dict(copy.deepcopy((other if step is plain else plain).state_dict()))
        assert_close(step(*pictures(batch, names, seed=seed)), losses[seed], 1e-9 if exact(names) else 5e-2, seed)
    options = {group["fused"] for group in other.optimizers["generators"].param_groups}
    assert options == {other.adam_options().get("fused")}


def test_fp16_skips_the_update_of_the_player_that_overflowed_and_of_no_other(tiny, batch):
    class Overflows:
        def backward(self, loss, player):
            super().backward(loss, player)
            if player == "discriminators":
                self.players[player][0].grad.fill_(float("inf"))

    step = labkit.make_step(tiny(), Overflows, "fp16")
    before = copy.deepcopy(step.players)
    scale = step.scaler.get_scale()
    step(*batch())
    moved = {player: not all(map(torch.equal, weights, before[player])) for player, weights in step.players.items()}
    assert moved == {"generators": True, "discriminators": False}
    assert step.scaler.get_scale() == scale / 2, "the scale is adapted once a step"


def test_fp16_survives_pictures_that_are_not_numbers(tiny, batch):
    step = labkit.make_step(tiny(pool_size=0), "fp16")
    step(*batch())
    before = copy.deepcopy(step.state_dict())
    real_a, real_b = batch(seed=1)
    step(real_a, torch.full_like(real_b, float("nan")))
    after = step.state_dict()
    assert same(after["model"], before["model"]) and same(after["optimizers"], before["optimizers"])
    assert after["scaler"]["scale"] == before["scaler"]["scale"] / 2
    assert all(loss.isfinite() for loss in step(*batch(seed=2)).values())


def test_fp16_s_scale_goes_on_from_a_checkpoint(tiny, batch):
    step = labkit.make_step(tiny(), "fp16")
    step(*batch())
    step.scaler.update(new_scale=1024.0)
    fresh = labkit.make_step(tiny(), "fp16")
    fresh.load_state_dict(step.state_dict())
    assert fresh.scaler.get_scale() == 1024.0


INACTIVE = [("streams", "no CUDA streams"), ("graph", "no CUDA graphs"), ("data_parallel", "one process")]


@pytest.mark.parametrize(("name", "reason"), INACTIVE)
def test_what_cannot_act_here_says_so_once_and_is_the_baseline(tiny, batch, name, reason):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        step = labkit.make_step(tiny(), name)
        losses = [step(*batch(seed=seed)) for seed in range(2)]
    (message,) = {str(warning.message) for warning in said}
    assert len(said) == 1 and message.startswith(name) and reason in message
    plain = labkit.make_step(tiny())
    for seed in range(2):
        assert_close(losses[seed], plain(*batch(seed=seed)), 1e-4, seed)  # a graph's Adam rounds otherwise


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_16_bits_that_a_processor_only_emulates_are_refused_unless_asked_for(tiny, batch, monkeypatch, name):
    monkeypatch.setattr("labkit.devices.emulates", lambda dtype: dtype in (torch.bfloat16, torch.float16))
    with pytest.raises(labkit.LabkitError, match=f"'{name}': this processor only emulates .*float16.*emulate=True"):
        labkit.make_step(tiny(), name, "batched")
    assert all(loss.isfinite() for loss in labkit.make_step(tiny(), name, emulate=True)(*batch()).values())
    names, said = candidates(tiny)
    assert name not in names and f"{name}: not tried, this processor only emulates" in "\n".join(said)
    step_operators(tiny(), name, size=32)  # on no device: what it would do elsewhere can be counted


PROCESSORS = [
    ("x86_64", (), {"bfloat16", "float16"}),
    ("x86_64", ("_is_avx512_bf16_supported",), {"float16"}),
    ("x86_64", ("_is_amx_tile_supported", "_is_mkldnn_fp16_supported"), set()),
    ("aarch64", ("_is_mkldnn_bf16_supported",), {"float16"}),
]


@pytest.mark.parametrize(("machine", "units", "emulated"), PROCESSORS)
def test_a_processor_is_asked_for_its_units(monkeypatch, machine, units, emulated):
    monkeypatch.setattr(devices.platform, "machine", lambda: machine)
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda name=name: name in units)
    asked = {
        f"_is_mkldnn_{kind}_supported": lambda kind=kind: f"_is_mkldnn_{kind}_supported" in units
        for kind in ("bf16", "fp16")
    }
    monkeypatch.setattr(torch.ops, "mkldnn", types.SimpleNamespace(**asked))
    assert {kind for kind in ("bfloat16", "float16") if EMULATES(getattr(torch, kind))} == emulated


def test_emulated_bf16_is_refused(tiny, elsewhere, monkeypatch):

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    with pytest.raises(labkit.LabkitError, match="speed-up 'bf16': Tesla T4 only emulates.*use 'fp16'"):
        labkit.make_step(elsewhere(tiny(), "cuda"), "bf16")


def test_the_table_says_everything_about_every_speedup():
    table = labkit.speedups()
    assert list(table.index) == list(KNOWN)
    assert (table.drop(columns="not_with").map(len) > 0).all(axis=None)
    assert table.loc["graph", "not_with"] == "data_parallel, winograd", "it is these that say so"
    assert table.loc["batched", "not_with"] == ""


IN_16_BITS = [names for names in LARGEST if not exact(names) and "compile" not in names]


@pytest.mark.slow
@pytest.mark.parametrize("names", IN_16_BITS, ids="+".join)
def test_in_16_bits_all_that_go_together_stay_near_the_baseline(tiny, batch, names):
    step = make(tiny, tuple(reversed(names)))  # the registry's order counts, not ours
    for seed, right in enumerate(expected(tiny, batch, names)[0]):
        assert_close(step(*pictures(batch, names, seed=seed)), right, 5e-2, seed)


def overriding_nothing(*bases):
    return type("Own", bases, {"generator": lambda self, batch: None})


RATES = {"generators": 1e-4, "discriminators": 1e-4}
NO_SEAM = "Own overrides nothing of a step.*did you mean 'generators'"
REFUSED = [
    ("instance", ["fp16", "bf16"], {}, "'bf16' and 'fp16' exclude each other: each sets the type"),
    *(
        ("batch", [name], {}, f"speed-up '{name}': batch norm.*use instance norm")
        for name in ("streams", "batched", "accumulate", "data_parallel")
    ),
    ("instance", [overriding_nothing()], {}, NO_SEAM),
    ("instance", [overriding_nothing(labkit.Step)], {}, NO_SEAM),
    ("instance", [overriding_nothing(labkit.models.CycleGANStep)], {}, NO_SEAM),
    *(("instance", [], {"lr": lr}, f"lr={lr}: .* A learning rate is a positive") for lr in (float("nan"), -1.0, 0.0)),
    ("instance", [], {"lr": {"generators": 1e-4}}, "one for each of generators, discriminators"),
    ("instance", [], {"lr": RATES | {"translator": 1e-4}}, "each of generators, discriminators"),
    ("instance", [], {"lr": RATES | {"discriminators": -1e-4}}, "'discriminators': -0.0001.*is a positive number"),
    ("instance", [], {"accumulate": 0}, "accumulate=0: .* at least 1"),
]


@pytest.mark.parametrize(("norm", "own", "options", "message"), REFUSED)
def test_what_makes_no_step_is_refused_with_its_reason(tiny, norm, own, options, message):
    with pytest.raises(labkit.LabkitError, match=message):
        labkit.make_step(tiny(norm=norm), *own, **options)


# ---- accumulate


@pytest.mark.parametrize(("n", "parts"), [(5, 2), (5, 3), (3, 3), (2, 1)])
def test_parts_of_any_size_are_the_whole_batch(tiny, batch, n, parts):
    plain, step = (labkit.make_step(tiny(pool_size=3).double(), **options) for options in ({}, {"accumulate": parts}))
    for seed in range(6):
        real = batch(n, size=16, seed=seed, dtype=torch.float64)
        assert_close(step(*real), plain(*real), 1e-9, seed)


def test_more_parts_than_pictures_are_refused_before_anything_changes(tiny, batch):
    step = labkit.make_step(tiny(pool_size=2), accumulate=3)
    step(*batch(3))
    before = copy.deepcopy(step.state_dict())
    with pytest.raises(labkit.LabkitError, match="accumulate=3: a batch of 2 cannot.*accumulate=2"):
        step(*batch(2))
    assert same(step.state_dict(), before)


# ---- recompute


def test_recompute_draws_the_same_dropout_twice(tiny, batch):
    losses = []
    for names in ((), ("recompute",)):
        model = tiny().double()
        model.G_A.model[10].conv_block.insert(4, torch.nn.Dropout(0.5))
        step = labkit.make_step(model, *names)
        torch.manual_seed(1)
        losses.append(Update.of(step, batch(dtype=torch.float64)))
    assert losses[0].losses == losses[1].losses
    assert same(losses[0].gradients, losses[1].gradients)


# ---- out_of_place


@pytest.mark.slow
def test_out_of_place_saves_three_copies_for_each_activation_after_a_norm(tiny):
    operators = [step_operators(tiny(), *names, size=32) for names in ((), ("out_of_place",))]
    copies = [sum(operator.name == "aten::copy_" for operator in own) for own in operators]
    step = labkit.make_step(tiny(), "out_of_place")
    generator_passes, discriminator_passes = 3, 3  # of each network: there, back, identity; deceive, real, fake
    in_generators = sum(activation in set(step.model.G_A.modules()) for activation in step.forwards)
    in_discriminators = len(step.forwards) // 2 - in_generators
    passes = 2 * (generator_passes * in_generators + discriminator_passes * in_discriminators)
    assert copies[0] - copies[1] == 3 * passes > 0


@pytest.mark.parametrize("name", ["out_of_place", "nhwc"])
@pytest.mark.parametrize("seam", ["losses", "backward"])
def test_a_speedup_leaves_the_model_as_found_even_after_an_error(tiny, batch, name, seam):
    model = tiny()
    before = [(set(vars(layer)), getattr(layer, "inplace", None)) for layer in model.modules()]
    labkit.make_step(model, name)(*batch())
    step = labkit.make_step(model, name)
    setattr(step, seam, lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        step(*batch())
    assert not getattr(step, "ready", None), "nhwc's cast weights"
    assert [(set(vars(layer)), getattr(layer, "inplace", None)) for layer in model.modules()] == before


def test_a_u_net_s_skips_go_on_carrying_what_was_changed_in_place(tiny):
    step = labkit.make_step(tiny(generator="unet_128"), "out_of_place")
    discriminators = {layer for network in (step.model.D_A, step.model.D_B) for layer in network.modules()}
    assert step.forwards and set(step.forwards) <= discriminators


# ---- channels_last


def test_weights_and_pictures_are_channels_last(tiny, batch):
    seen = []
    model = tiny()
    step = labkit.make_step(model, "channels_last")
    model.G_A.register_forward_hook(lambda layer, inputs, output: seen.append(inputs[0]))
    step(*batch(2))
    assert seen[0].is_contiguous(memory_format=torch.channels_last), "the first picture a generator sees"
    weights = [weight for weight in model.parameters() if weight.dim() == 4]
    assert weights and all(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights)


def test_instance_norm_is_guarded_once(tiny):
    model = tiny()
    for _ in range(2):
        labkit.make_step(model, "channels_last")
    norms = [layer for layer in model.modules() if isinstance(layer, torch.nn.InstanceNorm2d)]
    assert {len(norm._forward_hooks) for norm in norms} == {1}


# ---- compile


@pytest.mark.slow
def test_a_compiled_model_keeps_its_names_and_works_in_other_steps(tiny, batch):
    names = list(tiny().state_dict())
    model = tiny(pool_size=3).double()
    steps = [labkit.make_step(model, *stack) for stack in (("compile",), (), ("compile",), ("batched",))]
    assert list(model.state_dict()) == names
    losses, _ = expected(tiny, batch, ())
    for seed, step in enumerate(steps):
        step.optimizers = steps[0].optimizers
        assert_close(step(*pictures(batch, (), seed=seed)), losses[seed], 1e-9, seed)
    copy.deepcopy(model)


def test_compiling_without_a_compiler_is_refused(tiny, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda command: None)
    with pytest.raises(labkit.LabkitError, match="speed-up 'compile': .*C.. compiler.*install"):
        labkit.make_step(tiny(), "compile")
