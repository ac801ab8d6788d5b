"""The public reference's five ways to prepare pictures from files for training, as transforms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor
from torchvision.transforms import InterpolationMode, v2

from labkit.errors import DataError, check_known

MODES = ("resize_and_crop", "crop", "scale_width", "scale_width_and_crop", "none")


@dataclass(frozen=True)
class Preprocess:
    """The size that a picture has for training, before `size` is cropped from it at random.

    Args:
        mode: "resize_and_crop" resizes to a square of `load_size`; "scale_width" and "scale_width_and_crop" to that
            width, and a height in proportion, at least `size`; "crop" and "none" leave the size as it is. The modes
            "scale_width" and "none" crop nothing, and round both sides to multiples of 4, which networks need.
        size: pixels of a crop, and the least that the shorter side of a picture may have.
        load_size: the reference's `--load_size`; None is 286/256 of `size`, as in the reference.

    Raises:
        DataError: there is no such mode, `size` is below 16, or `load_size` cannot be used.
    """

    mode: str = "resize_and_crop"
    size: int = 256
    load_size: int | None = None

    def __post_init__(self) -> None:
        check_known("preprocess", self.mode, MODES)
        if self.size < 16:
            raise DataError(
                f"size={self.size} is too small to train on. Choose 16 or more; the public reference has 256."
            )
        if self.load_size is not None and self.mode in ("crop", "none"):
            raise DataError(f"load_size={self.load_size}: preprocess={self.mode!r} does not resize. Leave one of them.")
        if self.load_size is not None and self.load_size < self.size:
            raise DataError(f"load_size={self.load_size} is below size={self.size}, which is cropped from it.")

    @property
    def crops(self) -> bool:
        """True if training pictures are cropped, so that all have the same size."""
        return "crop" in self.mode

    @property
    def loaded(self) -> int:
        """The size to load pictures at, in pixels."""
        return round(self.size * 286 / 256) if self.load_size is None else self.load_size

    def for_training(self, picture: Tensor) -> Tensor:
        """A picture, ``uint8`` of shape (3, H, W), resized for training; each use crops it differently."""
        height, width = picture.shape[-2:]
        if self.mode == "resize_and_crop":
            height, width = self.loaded, self.loaded
        elif "scale_width" in self.mode and not (width == self.loaded and height >= self.size):
            height, width = max(self.loaded * height // width, self.size), self.loaded
        if not self.crops:
            height, width = round(height / 4) * 4, round(width / 4) * 4
        return resized(height, width)(picture)

    @property
    def for_testing(self) -> Callable[[Tensor], Tensor]:
        """For pictures to look at, (3, size, size): resized to `size`, or the middle if the mode keeps proportions."""
        if self.mode == "resize_and_crop":
            return resized(self.size, self.size)
        return v2.Compose([self.for_training, v2.CenterCrop(self.size)])


def resized(height: int, width: int) -> Callable[[Tensor], Tensor]:
    """A transform of ``uint8`` pictures (3, H, W) to this height and width: bicubic, antialiased, as Pillow does it."""
    return v2.Resize((height, width), InterpolationMode.BICUBIC, antialias=True)
