"""Weights in fp32, the copies the model computes with, and the optimiser between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from tolerant.train.engine.recipe import Recipe
from tolerant.train.model_state import clone, copy_into

_FORGETS = 10.0  # times as fast as a mean over all steps


class Weights:
    """The fp32 weights of a model and their optimiser, all updated in place.

    In bf16 the weights of convolutions and dense layers are kept twice: fp32 masters, which the
    optimiser owns, and bf16 copies, which the model computes with. Autocast would cast each of them
    in its own kernel, forward and backward; here one kernel each way does it for all. Every tensor
    keeps its address for the life of the run, so a captured CUDA graph stays valid through
    checkpoints, snapshots and changes of the learning rate.
    """

    def __init__(self, model: nn.Module, recipe: Recipe, *, bf16: bool) -> None:
        self.model = model
        low = _matrix_weights(model) if bf16 else set()
        self._low: list[tuple[nn.Parameter, Tensor]] = []
        self._masters: dict[str, Tensor] = {}
        self.trained: dict[str, Tensor] = {}
        self._computing: list[nn.Parameter] = []  # what each of `trained` is in the model
        for name, parameter in model.named_parameters():
            master: Tensor = parameter
            if parameter in low:
                master = parameter.detach().clone()
                parameter.data = parameter.data.to(torch.bfloat16)
                master.grad = torch.zeros_like(master)
                self._low.append((parameter, master))
            self._masters[name] = master
            if parameter.requires_grad:
                self.trained[name] = master
                self._computing.append(parameter)
        if not self.trained:
            raise ValueError(
                "the model has no parameter that requires a gradient. Call requires_grad_() on the "
                "layers that should learn."
            )
        dtypes = {weight.dtype for weight in self.trained.values()}
        if torch.float32 not in dtypes and not any(dtype.is_complex for dtype in dtypes):
            raise ValueError(
                f"the model must be trained in float32; its parameters are {', '.join(map(str, dtypes))}. "
                "Pass model.float(); the recipe's precision says what it computes in."
            )
        first = next(iter(self.trained.values()))
        # On the device, so that a captured step reads the epoch's rate instead of a constant.
        self.lr = torch.tensor(recipe.lr, dtype=torch.float32, device=first.device)
        self._state = _zero_state(self.trained, recipe)
        self._recipe = recipe
        self._parameters = list(model.parameters())
        self._average = Average(self.tensors(), recipe.average) if recipe.average else None

    def zero_grad(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """One update from the gradients of the last backward pass."""
        low = [
            (m.grad, _laid_out_as(p.grad, m))
            for p, m in self._low
            if p.grad is not None and m.grad is not None
        ]
        if low:
            torch._foreach_copy_([master for master, _ in low], [copy for _, copy in low])
        # A layer that this step left out stays as it is: its fp32 master still has the last step's gradient.
        groups: dict[float, dict[str, Tensor]] = {}  # by decay
        for (name, weight), parameter in zip(self.trained.items(), self._computing, strict=True):
            if parameter.grad is not None:
                spared = self._recipe.decay_on == "matrices" and weight.ndim <= 1
                groups.setdefault(0.0 if spared else self._recipe.weight_decay, {})[name] = weight
        for decay, named in groups.items():
            self._update(named, decay)
        self.cast_down()
        if self._average is not None:
            self._average.follow(self.tensors())

    def _update(self, named: Mapping[str, Tensor], decay: float) -> None:
        # The functions behind torch.optim's classes, whose bookkeeping is 5 % of a small MLP's step.
        lr, weights = self.lr, list(named.values())
        gradients = [w.grad for w in weights if w.grad is not None]
        state = {key: [values[n] for n in named] for key, values in self._state.items()}
        if self._recipe.optimizer == "sgd":
            sgd(
                weights,
                gradients,
                [*state.get("momentum_buffer", [None] * len(weights))],
                fused=True,
                weight_decay=decay,
                momentum=self._recipe.momentum,
                lr=lr,  # type: ignore[arg-type]
                dampening=0.0,
                nesterov=self._recipe.nesterov,
                maximize=False,
            )
        else:
            adam(
                weights,
                gradients,
                state["exp_avg"],
                state["exp_avg_sq"],
                [],
                state["step"],
                fused=True,
                capturable=lr.is_cuda,
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=lr,
                weight_decay=decay,
                eps=1e-8,
                maximize=False,
            )

    @torch.no_grad()
    def cast_down(self) -> None:
        """Bring the bf16 copies up to date with the masters."""
        if self._low:
            torch._foreach_copy_([p for p, _ in self._low], [m for _, m in self._low])

    def tensors(self) -> dict[str, Tensor]:
        """fp32 weights and buffers by their names in the model: what a checkpoint holds."""
        named = {name: master.detach() for name, master in self._masters.items()}
        named.update((name, buffer) for name, buffer in self.model.named_buffers())
        return named

    def statistics(self) -> list[Tensor]:
        """The model's buffers and their averages."""
        buffers = dict(self.model.named_buffers())
        averaged = {} if self._average is None else self._average.tensors
        return [*buffers.values(), *(averaged[name] for name in buffers if name in averaged)]

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The optimiser's state by weight: ``"blocks.0.conv1.weight/momentum_buffer"``."""
        return {
            f"{name}/{key}": tensor
            for key, tensors in self._state.items()
            for name, tensor in tensors.items()
        }

    def judging(self) -> dict[str, Tensor]:
        """The `tensors` that rows are judged by and that a run ends with: averaged ones, if there are any."""
        return self.tensors() if self._average is None else self._average.tensors

    def state(self) -> dict[str, Tensor]:
        """Everything that a step changes: `tensors` under ``w/``, `optimizer_tensors` under ``o/``, averages
        of the former under ``a/``."""
        state = {f"w/{name}": tensor for name, tensor in self.tensors().items()}
        state |= {f"o/{name}": tensor for name, tensor in self.optimizer_tensors().items()}
        if self._average is not None:
            state |= {f"a/{name}": tensor for name, tensor in self._average.state().items()}
        return state

    @torch.no_grad()
    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Copy stored `tensors` into the present ones, in place."""
        copy_into(self.tensors(), weights)
        self.cast_down()

    @contextmanager
    def replaced_by(self, weights: Mapping[str, Tensor] | None) -> Iterator[None]:
        """Inside, the model computes with these `tensors` (None: with its own)."""
        if weights is None:
            yield
            return
        own = clone(self.tensors())
        self.load(weights)
        try:
            yield
        finally:
            self.load(own)

    def judged(self) -> AbstractContextManager[None]:
        """Inside, the model computes with the `judging` tensors."""
        return self.replaced_by(None if self._average is None else self._average.tensors)

    @torch.no_grad()
    def load_state(self, stored: Mapping[str, Tensor]) -> None:
        """Copy a stored `state` into the present tensors, in place; other entries are passed over."""
        own = {name: tensor for name, tensor in stored.items() if name.startswith(("w/", "o/", "a/"))}
        copy_into(self.state(), own)
        self.cast_down()


class Average:
    """The mean of a model's weights and statistics over the last tenth of the steps; later over fewer.

    With ``decay`` 0.998 it forgets what lies more than some 500 steps back. It is judged by: its predictions
    swing less than those of the weights that train, and it memorises wrong labels later. At first it forgets
    faster, or the weights of the beginning, which know nothing, would be in it for epochs.
    """

    def __init__(self, tensors: Mapping[str, Tensor], decay: float) -> None:
        self.tensors = clone(tensors)
        self._least = 1.0 - decay
        device = next(iter(tensors.values())).device
        self._steps = torch.zeros((), dtype=torch.float32, device=device)  # there: a captured step counts on

    def follow(self, tensors: Mapping[str, Tensor]) -> None:
        """Take in the weights after a step."""
        share = torch.clamp_min(_FORGETS / (_FORGETS + self._steps), self._least)
        moving = [name for name, tensor in tensors.items() if tensor.is_floating_point()]
        mean = [self.tensors[name] for name in moving]
        change = torch._foreach_sub([tensors[name] for name in moving], mean)
        torch._foreach_mul_(change, share)
        torch._foreach_add_(mean, change)
        for name in tensors.keys() - set(moving):  # counters
            self.tensors[name].copy_(tensors[name])
        self._steps += 1

    def state(self) -> dict[str, Tensor]:
        """What it needs to go on."""
        return {**self.tensors, "/steps": self._steps}


def _laid_out_as(gradient: Tensor, weight: Tensor) -> Tensor:
    """The gradient with the weight's strides, where they differ only along dimensions of size 1.

    1 x 1 convolutions have two ways to write channels-last; one stray tensor among the gradients
    would send all of them down the slow path of a kernel each.
    """
    strides = zip(weight.shape, weight.stride(), gradient.stride(), strict=True)
    if gradient.stride() != weight.stride() and all(a == b for n, a, b in strides if n > 1):
        return gradient.as_strided(weight.shape, weight.stride())
    return gradient


def _matrix_weights(model: nn.Module) -> set[nn.Parameter]:
    matrix = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    return {
        parameter
        for module in model.modules()
        if isinstance(module, matrix)
        for parameter in module.parameters(recurse=False)
        if parameter.dtype == torch.float32
    }


def _zero_state(trained: Mapping[str, Tensor], recipe: Recipe) -> dict[str, dict[str, Tensor]]:
    """The optimiser's state by key and weight: zeros are what a first step starts from."""
    zeros = {name: torch.zeros_like(weight) for name, weight in trained.items()}
    if recipe.optimizer == "adam":
        steps = {n: torch.zeros((), dtype=torch.float32, device=w.device) for n, w in trained.items()}
        return {"exp_avg": zeros, "exp_avg_sq": clone(zeros), "step": steps}
    return {"momentum_buffer": zeros} if recipe.momentum else {}
