"""DeviationGAN: three players who keep out of each other's weights, and options that take one change back each."""

import copy

import pytest
import torch
from killing import same_weights
from tiny import one_generator

import labkit
from labkit.networks.codes import scaled


def one(**settings):
    """A tiny DeviationGAN whose translators are away from the identity, where nothing deviates yet."""
    model = one_generator(**settings)
    for name, network in model.named_children():
        if name.startswith("T_"):
            torch.nn.init.normal_(network.change.weight, 0, 0.1)
    return model


TWO = {"translators": 2}
OPTIONS = {
    "one translator": {},
    "both domains": {"consistency": "deviation_both"},
    "two translators": TWO,
    "cycle": {**TWO, "consistency": "cycle"},
    "two autoencoders": {**TWO, "autoencoders": 2},
    "pictures judged": {**TWO, "judged": "pictures"},
}
each_option = pytest.mark.parametrize("settings", OPTIONS.values(), ids=OPTIONS)


def moved(step, real_a, real_b):
    """The networks that each player's update changes, by player."""
    changed, update = {}, type(step).update

    def watched(self, player):
        before = copy.deepcopy(self.model)
        update(self, player)
        networks = self.model.named_children()
        changed[player] = {name for name, mine in networks if not same_weights(mine, getattr(before, name))}

    type(step).update = watched
    step(real_a, real_b)
    return changed


@each_option
def test_a_player_changes_its_own_weights_and_no_others(batch, settings):
    step = labkit.make_step(one(**settings))
    networks = {name for name, _ in step.model.named_children()}
    changed = moved(step, *batch())
    assert changed == {
        "autoencoder": {name for name in networks if name.startswith(("encoder", "decoder"))},
        "translator": {name for name in networks if name.startswith("T_")},
        "discriminator": {name for name in networks if name.startswith("D_")},
    }


def test_losses_by_name_in_the_order_of_the_domains(batch):
    found = {name: list(labkit.make_step(one(**settings))(*batch())) for name, settings in OPTIONS.items()}
    both = ["rec_A", "D_A", "G_A", "dev_A", "rec_B", "D_B", "G_B", "dev_B"]
    assert found == dict.fromkeys(("two translators", "two autoencoders", "pictures judged"), both) | {
        "one translator": ["rec_A", "D_A", "G_A", "dev_A", "rec_B"],
        "both domains": ["rec_A", "D_A", "G_A", "dev_A", "idt_A", "rec_B"],
        "cycle": ["rec_A", "D_A", "G_A", "cycle_A", "rec_B", "D_B", "G_B", "cycle_B"],
    }


def test_losses_are_what_the_networks_say(batch):
    model = one(consistency="deviation_both", lambda_deviation=2.0, lambda_identity=3.0, pool_size=0)
    real_a, real_b = batch(2)
    with torch.no_grad():
        code_a, code_b = model.encoder(real_a), model.encoder(real_b)
        back_a, back_b = model.decoder(code_a), model.decoder(code_b)
        code_a, code_b = (code / code.square().mean((1, 2, 3), keepdim=True).sqrt() for code in (code_a, code_b))
        fake, same = model.T_A(code_a), model.T_A(code_b)
        expected = {
            "rec_A": (back_a - real_a).abs().mean(),
            "rec_B": (back_b - real_b).abs().mean(),
            "dev_A": 2 * (fake - code_a).abs().mean(),
            "idt_A": 3 * (same - code_b).abs().mean(),
            "G_A": ((model.D_A(fake) - 1) ** 2).mean(),
            "D_A": (((model.D_A(code_b) - 1) ** 2).mean() + (model.D_A(fake) ** 2).mean()) / 2,
        }
    torch.testing.assert_close(labkit.make_step(model)(real_a, real_b), expected, rtol=1e-5, atol=0)


def test_a_cycle_of_codes_ends_where_it_began(batch):
    model = one(**OPTIONS["cycle"], lambda_cycle=2.0)
    real_a, real_b = batch()
    with torch.no_grad():
        code, _ = scaled(model.encoder(real_b))
        expected = 2 * (model.T_A(model.T_B(code)) - code).abs().mean()
    assert labkit.make_step(model)(real_a, real_b)["cycle_B"].item() == pytest.approx(expected.item(), rel=1e-5)


def test_codes_are_computed_once_a_step_and_never_carry_gradients(batch):
    model = one(**TWO)
    codes, passes = [], []
    model.encoder.register_forward_hook(lambda *_: passes.append(1))
    for judge in (model.D_A, model.D_B):
        judge.register_forward_hook(lambda layer, inputs, output: codes.append(inputs[0]))
    model.T_A.register_forward_hook(lambda layer, inputs, output: codes.append(inputs[0]))
    labkit.make_step(model)(*batch())
    assert len(passes) == 2
    fakes_judged_by_translators = 2
    assert sum(code.requires_grad for code in codes) == fakes_judged_by_translators


def test_the_pictures_that_are_judged_are_those_that_the_model_translates(batch):
    model, kept = one(judged="pictures"), {"real_a": batch(2)[0], "real_b": batch(2)[1]}
    labkit.make_step(model).losses("autoencoder", kept)
    labkit.make_step(model).losses("translator", kept)
    assert torch.allclose(kept["fake_B"], model.translator()(kept["real_a"]), atol=1e-6)


def test_the_translator_starts_as_the_identity(batch):
    model = one_generator()
    real, _ = batch()
    with torch.no_grad():
        assert torch.allclose(model.translator()(real), model.decoder(model.encoder(real)), atol=1e-6)


@pytest.mark.parametrize(("judged", "shape"), [("codes", (16, 8, 8)), ("pictures", (3, 32, 32))])
def test_the_pool_holds_what_is_judged(batch, judged, shape):
    model = one(judged=judged)
    step = labkit.make_step(model)
    for seed in range(4):
        step(*batch(seed=seed))
    assert list(model.pools) == ["fake_B"]
    assert model.pools["fake_B"].state_dict()["pictures"].shape == (3, *shape)


def test_an_autoencoder_trained_first_goes_on_into_the_translation(batch):
    first, then = one(stage="autoencoder"), one(stage="translation")
    step = labkit.make_step(first)
    assert list(step(*batch())) == ["rec_A", "rec_B"]
    then.load_state_dict(first.state_dict())
    step = labkit.make_step(then)
    assert moved(step, *batch()) == {"translator": {"T_A"}, "discriminator": {"D_A"}}


@each_option
def test_translators_lead_from_pictures_to_pictures(batch, settings):
    model = one(**settings)
    for direction in model.directions:
        network = model.translator(direction)
        translated = network(batch(size=network.min_size)[0])
        assert translated.shape == (1, 3, network.min_size, network.min_size) and translated.abs().max() <= 1
    if len(model.directions) == 1:
        with pytest.raises(labkit.LabkitError, match="translators=2"):
            model.translator("BtoA")


def test_each_domain_has_its_own_autoencoder_if_there_are_two(batch):
    model = one(**OPTIONS["two autoencoders"])
    real, _ = batch()
    with torch.no_grad():
        code, scale = scaled(model.encoder_A(real))
        expected = model.decoder_B(scale * model.T_A(code))
        assert torch.equal(model.translator("AtoB")(real), expected)


def test_the_least_size_can_be_trained_on_and_a_smaller_one_is_refused(batch):
    for judged in ("codes", "pictures"):
        step = labkit.make_step(one(judged=judged))
        step(*batch(size=24))
        with pytest.raises(labkit.LabkitError, match="20x20 pixels.*discriminator of.*at least 24"):
            step(*batch(size=20))
