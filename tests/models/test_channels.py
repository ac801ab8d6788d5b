"""Pictures with other numbers of channels than three: from the files to the translation."""

import numpy as np
import pytest
import torch
from PIL import Image
from tiny import album_of

import labkit
from labkit.errors import LabkitError
from labkit.networks.generators import GENERATORS, make_generator
from labkit.networks.patchgan import DISCRIMINATORS, make_discriminator
from labkit.training import checkpoints

GREY_TO_COLOUR = dict(channels_a=1, channels_b=3, lambda_identity=0.0)


@pytest.fixture
def album(tmp_path):
    """Coloured pictures of either domain, 32 by 32 pixels."""
    return album_of(tmp_path / "album", 2, 32, 32)


@pytest.mark.parametrize("name", GENERATORS)
def test_each_generator_turns_one_number_of_channels_into_another(name):
    network = make_generator(name, width=4, channels=(2, 5))
    side = network.size_multiple * max(1, 16 // network.size_multiple)
    with torch.no_grad():
        assert network.eval()(torch.zeros(1, 2, side, side)).shape == (1, 5, side, side)
    assert network.channels == 2


@pytest.mark.parametrize("name", DISCRIMINATORS)
def test_each_discriminator_judges_so_many_channels(name):
    assert make_discriminator(name, 2, channels=4)(torch.zeros(1, 4, 32, 32)).shape[1] == 1


def test_grey_folders_train_and_translate_to_colours(tiny, album, tmp_path):
    data = labkit.folders(album, 32, channels=(1, 3))
    grey = np.array(Image.open(album / "trainA" / "0.png").convert("L"))
    assert np.array_equal(data.test_a[0][0].numpy(), grey)
    labkit.fit(labkit.make_step(tiny(**GREY_TO_COLOUR)), data, 1, checkpoint=tmp_path / "run")
    model = labkit.load_model(tmp_path / "run")
    for direction, mode in (("AtoB", "RGB"), ("BtoA", "L")):
        file = tmp_path / f"{direction}.png"
        labkit.translate(model, album / "trainA" / "0.png", file, direction)
        assert Image.open(file).mode == mode
    assert (tmp_path / "run" / "samples" / "000001.png").exists()


@pytest.mark.parametrize("settings", [GREY_TO_COLOUR, dict(generator="resnet_3blocks_resize", norm="instance_blocks")])
def test_speed_ups_compute_the_same_on_other_channels_and_when_pixels_are_repeated(tiny, batch, settings):
    real_a, real_b = batch(dtype=torch.float64)
    batches = [real_a[:, : settings.get("channels_a", 3)], real_b]
    stacks = (), ("batched", "subpixel", "winograd", "fused_adam")
    losses = [labkit.make_step(tiny(**settings).double(), *names)(*batches) for names in stacks]
    torch.testing.assert_close(*losses, rtol=1e-10, atol=1e-12)


def test_a_batch_of_other_channels_is_named(tiny, batch):
    with pytest.raises(LabkitError, match=r"real_a has shape \(1, 3, 32, 32\); a batch has shape \(B, 1, H, W\)"):
        labkit.make_step(tiny(**GREY_TO_COLOUR))(*batch())


def test_a_reference_generator_s_channels_are_read_off_its_weights(tmp_path):
    torch.save(make_generator("resnet_6blocks", 2, channels=(1, 2)).state_dict(), tmp_path / "latest_net_G.pth")
    loaded = labkit.load_generator(tmp_path / "latest_net_G.pth")
    with torch.no_grad():
        assert loaded(torch.zeros(1, 1, 128, 128)).shape == (1, 2, 128, 128)


def test_a_grey_network_is_exported(tiny, tmp_path):
    labkit.export(tiny(**GREY_TO_COLOUR), tmp_path / "grey.pt2")


def test_a_checkpoint_from_before_there_were_channels_resumes(tiny, fruit, tmp_path):
    labkit.fit(labkit.make_step(tiny()), fruit, 1, checkpoint=tmp_path)
    file = tmp_path / checkpoints.FILE
    state = torch.load(file)
    del state["settings"]["channels_a"], state["settings"]["channels_b"]
    torch.save(state, file)
    assert labkit.fit(labkit.make_step(tiny()), fruit, 2, checkpoint=tmp_path).done == 2
