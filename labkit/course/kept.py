"""What a network keeps between its forward and its backward pass."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks


def saved_tensors(network: nn.Module, picture: Tensor) -> list[tuple[str, Tensor]]:
    """The tensors that a forward pass saves for the backward pass, each with the kind of layer that asks for it.

    In the order in which they are saved. Weights are among them, and views of the same memory.

    Args:
        network: stays as it was.
        picture: its input, with a batch dimension.
    """
    saved: list[tuple[str, Tensor]] = []
    running: list[str] = []
    hooks = []
    for layer in network.modules():
        hooks.append(layer.register_forward_pre_hook(lambda layer, _: running.append(type(layer).__name__)))
        hooks.append(layer.register_forward_hook(lambda *_: running.pop() and None))

    def keep(tensor: Tensor) -> Tensor:
        saved.append((running[-1], tensor))
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        network(picture)
    for hook in hooks:
        hook.remove()
    return saved


def kept_bytes(saved: Iterable[tuple[str, Tensor]]) -> dict[str, int]:
    """Bytes that saved tensors hold besides the weights, by the kind of the layer that saved them first.

    Args:
        saved: kinds of layers and tensors, as `saved_tensors` returns them.
    """
    seen: set[int] = set()
    kept: dict[str, int] = {}
    for layer, tensor in saved:
        memory = tensor.untyped_storage()
        if isinstance(tensor, nn.Parameter) or memory.data_ptr() in seen:
            continue
        seen.add(memory.data_ptr())
        kept[layer] = kept.get(layer, 0) + memory.nbytes()
    return kept
