"""How pictures from files become training pictures: the five modes of the public reference."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from labkit.errors import DataError, check_known

MODES = ("resize_and_crop", "crop", "scale_width", "scale_width_and_crop", "none")


@dataclass(frozen=True)
class Preprocess:
    """How a picture is resized for training, before `size` is cropped from it at random.

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
        if self.load_size is not None and not self.resizes:
            raise DataError(f"load_size={self.load_size}: preprocess={self.mode!r} does not resize. Leave one of them.")
        if self.load_size is not None and self.load_size < self.size:
            raise DataError(f"load_size={self.load_size} is below size={self.size}, which is cropped from it.")

    @property
    def resizes(self) -> bool:
        """Whether the mode has a size to load pictures at."""
        return self.mode not in ("crop", "none")

    @property
    def crops(self) -> bool:
        """Whether training pictures are cropped, so that all have the same size."""
        return "crop" in self.mode

    @property
    def loaded(self) -> int:
        """The size to load pictures at, in pixels."""
        return round(self.size * 286 / 256) if self.load_size is None else self.load_size

    def sides(self, height: int, width: int) -> tuple[int, int]:
        """Height and width to which a picture of this height and width is resized."""
        if self.mode == "resize_and_crop":
            return self.loaded, self.loaded
        if "scale_width" in self.mode and not (width == self.loaded and height >= self.size):
            height, width = max(self.loaded * height // width, self.size), self.loaded
        return (height, width) if self.crops else (round(height / 4) * 4, round(width / 4) * 4)

    def for_training(self, picture: Tensor) -> Tensor:
        """A picture, ``uint8`` of shape (3, H, W), resized for training; each use crops it differently."""
        return resized(picture, *self.sides(*picture.shape[-2:]))

    def for_testing(self, picture: Tensor) -> Tensor:
        """A picture to look at, (3, size, size): resized to `size`, or its middle if the mode keeps proportions."""
        if self.mode == "resize_and_crop":
            return resized(picture, self.size, self.size)
        from torchvision.transforms.v2 import functional as transforms  # as in `resized`

        return transforms.center_crop(self.for_training(picture), [self.size, self.size]).contiguous()


def resized(picture: Tensor, height: int, width: int) -> Tensor:
    """A ``uint8`` picture (3, H, W) at another height and width: bicubic and antialiased, as Pillow does it."""
    if picture.shape[-2:] == (height, width):
        return picture.contiguous()
    from torchvision.transforms.v2 import InterpolationMode, functional  # a second to import, and not all need it

    return functional.resize(picture, [height, width], InterpolationMode.BICUBIC, antialias=True).contiguous()
