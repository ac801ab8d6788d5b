# expects: your code fails with NotImplementedError: Caught NotImplementedError i
from torch.utils.data import DataLoader

from labkit.models import losses


def cycle_loss(*numbers):
    class Work:
        def __len__(self):
            return 1

        def __getitem__(self, place):
            return losses.cycle_loss(*numbers)

    return next(iter(DataLoader(Work(), num_workers=1, batch_size=None)))
