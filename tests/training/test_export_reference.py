"""A CycleGAN goes back to the public reference: the names and shapes of its files, and the options to read them."""

import pytest

import labkit
from labkit.training.reference_weights import export_reference

REFERENCE = dict(generator="resnet_6blocks", discriminator="basic", ngf=4, ndf=4)


def test_the_command_names_the_files(tiny, tmp_path, call, fruit):
    model = tiny(**{**REFERENCE, "generator": "resnet_9blocks_narrow"}, lambda_identity=0.0)
    labkit.fit(labkit.make_step(model), fruit, 1, checkpoint=tmp_path / "run", sample_every=100)
    status, out, _ = call("export", "--run", tmp_path / "run", "--reference", tmp_path / "fruit")
    assert status == 0
    assert out.splitlines() == [
        str(tmp_path / "fruit" / f"latest_net_{name}.pth") for name in ("G_A", "G_B", "D_A", "D_B")
    ]
    assert labkit.load_generator(tmp_path / "fruit" / "latest_net_G_A.pth").model[1].out_channels == 2


LACKING = [
    ({"generator": "resnet_3blocks"}, "generator='resnet_3blocks'.*resnet_9blocks, resnet_6blocks, unet_256"),
    ({"generator": "resnet_9blocks_grouped"}, "generator='resnet_9blocks_grouped'"),
    ({"norm": "instance_blocks"}, "norm='instance_blocks'"),
]


@pytest.mark.parametrize(("settings", "message"), LACKING)
def test_networks_that_the_reference_lacks_are_refused(tiny, tmp_path, settings, message):
    with pytest.raises(labkit.LabkitError, match=message):
        export_reference(tiny(**{**REFERENCE, **settings}), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_models_that_the_reference_lacks_are_refused(tiny, tmp_path):
    for model in (labkit.DeviationGAN(ngf=2, ndf=2, blocks=1), tiny().G_A):
        with pytest.raises(labkit.LabkitError, match="Only a CycleGAN can go back"):
            export_reference(model, tmp_path / "out")


def test_files_of_the_reference_are_not_replaced(tiny, tmp_path):
    (tmp_path / "latest_net_D_B.pth").write_text("trained for weeks")
    with pytest.raises(labkit.LabkitError, match="latest_net_D_B.pth would be replaced"):
        export_reference(tiny(**REFERENCE), tmp_path)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["trained for weeks"]
