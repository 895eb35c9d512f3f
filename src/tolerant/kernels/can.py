"""Which way of computing serves a call: the one place that says so.

A fast way wants real numbers in memory and operations that run as they are called. Compilers, make_fx and the
transforms of torch.func get the plain way, which they can look into; the fast ones are opaque.
"""

from __future__ import annotations

import functools
import importlib.util
import warnings
from typing import Literal

import torch
from torch import Tensor

WAYS = ("auto", "plain", "fused", "triton")  # what `impl` may ask for; "fused" is `kernels.cpu`
_TRITON_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def way_of_loss(
    logits: Tensor, labels: Tensor, *weights: Tensor | None, form: str, impl: str
) -> Literal["plain", "fused", "triton"]:
    """How a loss of p_y is computed, for logits (N, C); ``form`` is the name of its Triton form.

    Labels that are probabilities are for the plain way.
    """
    if labels.is_floating_point() or impl == "plain":
        return "plain"
    if impl == "fused":
        return "fused"
    served = run_triton(logits, *weights)
    if served and has_triton_form(form):
        return "triton"
    if impl == "triton":
        gpu = "logits on a CUDA GPU (compute capability 8.0 or newer) with Triton installed"
        needs = f"{gpu}; got logits on {logits.device}"
        needs = "a loss with a Triton form; this one has none" if served else needs
        raise ValueError(f"impl='triton' needs {needs}. impl='auto' falls back by itself.")
    return "fused" if logits.is_cpu and run_now(logits) else "plain"


def run_triton(logits: Tensor, *weights: Tensor | None) -> bool:
    """Whether the kernels of `kernels.triton` take logits (N, C).

    Not for empty batches, where class or sample weights want a gradient, or beyond 262144 classes (fewer on a
    small GPU).
    """
    return (
        logits.is_cuda
        and run_now(logits)
        and logits.dtype in _TRITON_DTYPES
        and logits.numel() > 0
        and not any(weight is not None and weight.requires_grad for weight in weights)
        and device_has_triton(logits.device)
        and logits.shape[1] <= _most_classes(logits.device)
    )


def has_triton_form(name: str) -> bool:
    from tolerant.kernels.triton.forms import FORMS

    return name in FORMS


def run_norm(x: Tensor, residual: Tensor | None) -> bool:
    """Whether batch norm, shortcut and ReLU run in one Triton kernel."""
    return (
        x.is_cuda
        and run_now(x)
        and x.dtype in (torch.float32, torch.bfloat16, torch.float16)
        and _is_batch_of_pictures(x)
        and (residual is None or (residual.dtype, residual.shape) == (x.dtype, x.shape))
        and device_has_triton(x.device)
    )


def run_norm_pool(x: Tensor) -> bool:
    """Whether batch norm, pooling and ReLU run as a CPU likes them."""
    return x.is_cpu and run_now(x) and x.dtype in (torch.float32, torch.float64) and _is_batch_of_pictures(x)


def _is_batch_of_pictures(x: Tensor) -> bool:
    return x.is_contiguous(memory_format=torch.channels_last) and x.numel() > x.shape[1]


def run_now(tensor: Tensor) -> bool:
    """Whether operations run as they are called, on numbers in memory."""
    return is_eager() and has_numbers(tensor)


def is_eager() -> bool:
    return not torch.compiler.is_compiling() and not torch._C._are_functorch_transforms_active()


def has_numbers(tensor: Tensor) -> bool:
    """Whether the tensor has memory of its own to read: a fake or a sharded one (DTensor) has none.

    Nor may it be read while operations are recorded.
    """
    return type(tensor).__torch_dispatch__ is Tensor.__torch_dispatch__ and not _is_recorded()


def read(values: Tensor) -> bool:
    """Whether the values can be read at no cost.

    Not on a GPU, where the host would have to wait for the device, nor inside torch.compile, make_fx and
    torch.func.
    """
    if not values.is_cpu or torch.compiler.is_compiling() or _is_recorded():
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(values)


def count(rows: Tensor) -> bool:
    """Whether the host can count rows: not in a CUDA graph, nor those of tensors without numbers."""
    capturing = rows.is_cuda and torch.cuda.is_current_stream_capturing()
    return not capturing and not rows.is_meta and has_numbers(rows)


def scale_gradient(upstream: Tensor) -> bool:
    """Whether a gradient formed in the forward pass serves: it only has to be multiplied by the upstream one.

    Not where it must be differentiable again (``create_graph``), nor for several upstream gradients at once
    (``is_grads_batched``), which have no memory to read: there the plain way starts over.
    """
    return not torch.is_grad_enabled() and torch._C._has_storage(upstream)


def _is_recorded() -> bool:
    """Whether make_fx records the operations: what is read from a tensor would become a constant."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None


@functools.cache
def device_has_triton(device: torch.device) -> bool:
    """Whether the kernels run there: Triton, and an NVIDIA GPU of compute capability 8.0 or newer."""
    return (
        torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 0) and _triton_starts()
    )


@functools.cache
def _triton_starts() -> bool:
    """Triton builds its driver in C: without a compiler or Python's headers it is there, but of no use."""
    if importlib.util.find_spec("triton") is None:
        return False
    try:
        from triton.runtime import driver

        driver.active.get_current_device()
    except Exception as error:
        warnings.warn(
            f"Triton does not start ({type(error).__name__}: {error}), so the slower plain path is used. "
            "Install a C compiler and Python's headers, or uninstall Triton.",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True


@functools.cache
def _most_classes(device: torch.device) -> int:
    """The parts of a row wait for each other, so there must be room for several rows at once."""
    from tolerant.kernels.triton import launch, parts

    return launch.PART * min(parts.MOST_PARTS, launch.multiprocessors(device) // 2)
