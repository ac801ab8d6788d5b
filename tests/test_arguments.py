"""Arguments that make no sense are refused before anything is done, each with its reason."""

import pytest
from tiny import TINY

import labcourse
import labkit
from labcourse.drawings import drawing
from labcourse.speedrun import ladder
from labkit import CycleGAN, DeviationGAN, LabkitError
from labkit.networks.generators import make_generator
from labkit.networks.patchgan import make_discriminator
from labkit.simulate import CLUSTERS, predict, scaling
from labkit.simulate.clusters import NVLINK, Cluster, all_reduce_us

SENSELESS = [
    (lambda: CycleGAN(gan_mode="lsgn"), "did you mean 'lsgan'"),
    (lambda: CycleGAN(lambda_a=-1.0), "lambda_a=-1.0: .*at least 0"),
    (lambda: CycleGAN(pool_size=-5), "pool_size=-5: .*at least 0"),
    (lambda: CycleGAN(channels_a=1), "lambda_identity=0"),  # an identity loss between different channels
    (lambda: CycleGAN(**TINY).translator("A2B"), "AtoB"),
    (lambda: DeviationGAN(judged="code"), "did you mean 'codes'"),
    (lambda: DeviationGAN(consistency="cycle"), "needs a way back.*translators=2"),
    (lambda: DeviationGAN(translators=3), "translators=3"),
    (lambda: DeviationGAN(autoencoders=0), "autoencoders=0"),
    (lambda: DeviationGAN(ngf=1), "ngf=1: .*at least 2"),
    (lambda: DeviationGAN(blocks=0), "blocks=0: .*at least 1"),
    (lambda: DeviationGAN(lambda_deviation=-1.0), "lambda_deviation=-1.0: .*at least 0"),
    (lambda: DeviationGAN(pool_size=-1), "pool_size=-1: .*at least 0"),
    (lambda: make_generator("resnet9"), "resnet_9blocks"),
    (lambda: make_generator("unet_256", norm="instance_blocks"), "residual blocks"),
    (lambda: make_generator("unet_256", norm="layer"), "norm='layer'"),
    (lambda: make_discriminator("pixels"), "did you mean 'pixel'"),
    (lambda: make_discriminator("n_layers", n_layers=0), "n_layers=0"),
    (lambda: labkit.fruit(n=0), "n=0: .*at least 1,"),
    (lambda: labkit.fruit(n=3, size=15), "size=15: .*at least 16,"),
    (lambda: labkit.folders(".", 32, channels=(4, 4)), "channels"),  # of files one or three
    (lambda: labkit.translate(make_generator("resnet_3blocks", 2, channels=(4, 4)), ".", "out"), "channels"),
    (lambda: labkit.folders(".", 32, preprocess="none"), "preprocess='none' is unknown.*resize_and_crop"),
    (lambda: labkit.folders(".", 32, load_size=31), "size=32: .*at most load_size=31"),
    (lambda: labkit.download("horses2zebras"), "did you mean 'horse2zebra'.*apple2orange.*vangogh2photo"),
    (lambda: labkit.linear_schedule(10, -1), "decay=-1"),
    (lambda: labkit.export(CycleGAN(**TINY), "model.onxx"), "'.onxx' is unknown .did you mean '.onnx'"),
    (lambda: labkit.export(DeviationGAN(ngf=2, ndf=2, blocks=1), "model.pt2", "BtoA"), "direction='BtoA'"),
    (lambda: predict(print, device="A10"), "did you mean 'A100'"),
    (lambda: scaling([], device="H10"), "device='H10'.*H100"),
    (lambda: all_reduce_us(1, 12, CLUSTERS["NVLink + InfiniBand"]), "gpus=12.*nodes of 8"),
    (lambda: all_reduce_us(1, 16, Cluster(NVLINK)), "gpus=16.*one node of 8"),
    (lambda: drawing("cyclegam"), "cyclegam.*cyclegan"),
    (lambda: ladder.source("third"), "entry='third' is unknown.*colours, cyclegan"),
    (lambda: labcourse.paper_profile("unet_b16_stream"), "did you mean .unet_b16_streams."),
    (lambda: labcourse.public_trace("resnet50_workers5"), "did you mean 'resnet50_workers4'"),
]


@pytest.mark.parametrize(("ask", "message"), SENSELESS)
def test_arguments_that_make_no_sense_are_refused(tmp_path, monkeypatch, ask, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LabkitError, match=message):
        ask()
    assert not [*tmp_path.iterdir()]
