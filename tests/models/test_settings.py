"""Settings of a model that make no sense are refused, each with its reason."""

import pytest

from labkit import CycleGAN, DeviationGAN, LabkitError

SENSELESS = [
    (CycleGAN, {"gan_mode": "lsgn"}, "did you mean 'lsgan'"),
    (CycleGAN, {"lambda_a": -1.0}, "lambda_a=-1.0: .*at least 0"),
    (CycleGAN, {"pool_size": -5}, "pool_size=-5: .*at least 0"),
    (CycleGAN, {"channels_a": 1}, "lambda_identity=0"),  # an identity loss between different channels
    (DeviationGAN, {"judged": "code"}, "did you mean 'codes'"),
    (DeviationGAN, {"consistency": "cycle"}, "needs a way back.*translators=2"),
    (DeviationGAN, {"translators": 3}, "translators=3"),
    (DeviationGAN, {"autoencoders": 0}, "autoencoders=0"),
    (DeviationGAN, {"ngf": 1}, "ngf=1: .*at least 2"),
    (DeviationGAN, {"blocks": 0}, "blocks=0: .*at least 1"),
    (DeviationGAN, {"lambda_deviation": -1.0}, "lambda_deviation=-1.0: .*at least 0"),
    (DeviationGAN, {"pool_size": -1}, "pool_size=-1: .*at least 0"),
]


@pytest.mark.parametrize(("model", "settings", "message"), SENSELESS)
def test_settings_that_make_no_sense_are_refused(model, settings, message):
    with pytest.raises(LabkitError, match=message):
        model(**settings)
