"""Which device and precision, and reading from a device without stopping the host."""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from tolerant.train.engine.recipe import Precision


def pick_device(device: str | torch.device = "auto") -> torch.device:
    """The device by name; "auto" is the GPU if there is one."""
    if device != "auto":
        refusal = f"device must be 'auto', 'cpu' or 'cuda'; got {str(device)!r}."
        try:
            picked = torch.device(device)
        except RuntimeError:  # torch's own message lists twenty devices, most of which nobody has
            raise ValueError(refusal) from None
        if picked.type not in ("cpu", "cuda"):
            raise ValueError(refusal)
        if picked.type == "cuda" and not torch.cuda.is_available():
            raise ValueError("device 'cuda' is not available: torch sees no GPU. Use device='cpu'.")
        if picked.type == "cuda" and (picked.index or 0) >= torch.cuda.device_count():
            raise ValueError(
                f"device {str(picked)!r} is not available: torch sees {torch.cuda.device_count()} GPU(s), "
                "and the first is 'cuda:0'."
            )
    else:
        picked = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if picked.type == "cuda" and picked.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return picked


def use_bf16(precision: Precision, device: torch.device) -> bool:
    """Whether to compute in bf16; "auto" does so where the hardware multiplies it faster."""
    if precision != "auto":
        return precision == "bf16"
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device)[0] >= 8
    return _cpu_multiplies_bf16()


@functools.cache
def _cpu_multiplies_bf16() -> bool:
    # Without AMX a convolution in bf16 took 2 to 6 times as long as in fp32 (AVX-512, two cores).
    try:
        return "amx_bf16" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


@functools.cache
def keep_freed_memory() -> None:
    """Ask glibc to keep what training frees: the next step needs it again.

    By default it returns the large tensors of a step to the kernel, and the next step faults them in
    again: up to 14,000 page faults in each step of the small CNN, a sixth of its time. Up to 1 GiB
    stays with the process instead. Other C libraries are left alone.
    """
    with suppress(AttributeError, OSError, TypeError):  # TypeError: Windows has no library without a name
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-3, 32 << 20)  # M_MMAP_THRESHOLD, its largest value
        mallopt(-1, 1 << 30)  # M_TRIM_THRESHOLD


class Arriving:
    """A tensor on its way to the host."""

    def __init__(self, tensor: Tensor) -> None:
        self._event = None
        self._tensor = tensor.detach()
        if tensor.device.type == "cuda":
            self._tensor = torch.empty_like(tensor, device="cpu", pin_memory=True)
            self._tensor.copy_(tensor, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record()

    def wait(self) -> Generator[bool, None, Tensor]:
        """Yields False until it is there, then returns it."""
        while self._event is not None and not self._event.query():
            yield False
        return self._tensor


class Clock:
    """Seconds of an epoch's training, on the device's own clock where it has one."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._start = time.perf_counter()
        self._marks: list[float] = []
        self._events: list[torch.cuda.Event] = []

    def mark(self) -> None:
        self._marks.append(time.perf_counter())
        if self._on_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._events.append(event)

    def marked_s(self) -> float:
        """Between the two marks; on a GPU both must have been reached."""
        if self._on_gpu:
            return self._events[0].elapsed_time(self._events[1]) / 1e3
        return self._marks[1] - self._marks[0]

    def total_s(self) -> float:
        return time.perf_counter() - self._start
