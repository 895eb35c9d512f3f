r"""Log-probabilities with all their digits, and gradients formed without cancellation.

``z_y - logsumexp(z)`` loses digits near p_y = 1 (relative error up to 1 at a gap of 18 in fp32), and
so does ``softmax - 1`` in its gradient. Here the rivals' sum is kept apart: with
:math:`s = \sum_{j \ne y} e^{z_j - m}` and :math:`e_y = e^{z_y - m}` for the row's maximum m,

.. math:: \log p_y = z_y - m - \log(e_y + s), \qquad 1 - p_y = s / (e_y + s).

Everything works on rows (N, C), in fp32 at least: fp16 loses p_y below 6e-8, and CPU autocast would
keep a log-softmax in bf16. These functions are the reference; `tolerant.kernels.cpu` and
`tolerant.kernels.triton` are the fast ones.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# Below it L_q is cross entropy to all digits of fp64, and in fp32 1e-46 is 0 and the quotient NaN.
LEAST_Q = 1e-30


def log_p_y(logits: Tensor, labels: Tensor) -> Tensor:
    """Log-probability of each row's given label.

    >>> log_p_y(torch.tensor([[50.0, 0.0], [0.0, 0.0]]), torch.tensor([0, 1]))
    tensor([-1.9287e-22, -6.9315e-01])
    """
    return _LogPY.apply(logits, labels)


def log_softmax(logits: Tensor) -> Tensor:
    """Log-probabilities of all classes, each row (N, C)."""
    return _LogSoftmax.apply(logits)


def log_p_given(logits: Tensor, labels: Tensor, transition: Tensor) -> Tensor:
    r"""Log-probability of the given label after noise, :math:`\log \sum_i p_i T_{iy}`.

    >>> identity = torch.eye(2)
    >>> log_p_given(torch.tensor([[0.0, 0.0]]), torch.tensor([0]), identity)
    tensor([-0.6931])
    """
    return _LogPGiven.apply(logits, labels, transition)


def expm1(x: Tensor) -> Tensor:
    """exp(x) - 1 with all its digits, for x <= 0: the formulas ask for no other."""
    if torch.compiler.is_compiling():
        # On a CPU Inductor (torch 2.13) makes exp(x) - 1 of it, which has no digit left near 0, and the
        # focal loss divides by it.
        half = torch.tanh(x / 2)
        return 2 * half / (1 - half)
    return torch.expm1(x)


def softplus(x: Tensor) -> Tensor:
    # From its threshold on torch returns x, which leaves out exp(-x): at 20, 1e-10 of the value.
    return F.softplus(x, threshold=40 if x.dtype == torch.float64 else 20)


def rows_at(matrix: Tensor, labels: Tensor) -> Tensor:
    """matrix[labels], but a label of -1 is refused instead of counted from the end."""
    return matrix.gather(0, labels.unsqueeze(-1).expand(*labels.shape, matrix.shape[1]))


def compute_dtype(logits: Tensor) -> torch.dtype:
    """The dtype the arithmetic is done in: fp64 stays, everything else is fp32."""
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def _upcast(logits: Tensor) -> Tensor:
    return logits.to(compute_dtype(logits))


def _shifted(logits: Tensor) -> Tensor:
    """z less the row's maximum, which cancels in every derivative; sums of large logits lose digits."""
    z = _upcast(logits)
    return z - z.amax(-1, keepdim=True).detach()


def is_class(labels: Tensor, like: Tensor) -> Tensor:
    """bool, of the shape of ``like`` (N, C): True at each row's label."""
    return torch.arange(like.shape[-1], device=like.device) == labels.unsqueeze(-1)


def _split(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """z_y - m, the exponentials with the label's put to 0, their sum s, and e_y + s - 1."""
    shifted = _shifted(logits)
    is_label = is_class(labels, shifted)
    # By index, not by the mask: an index out of range is refused where no check of labels can look, in
    # torch.compile, torch.func and on a GPU.
    own = shifted.gather(-1, labels.unsqueeze(-1))
    rivals = torch.where(is_label, 0.0, torch.exp(shifted))
    rival_sum = rivals.sum(-1, keepdim=True)
    return own, rivals, rival_sum, torch.expm1(own) + rival_sum


class FromInputs(torch.autograd.Function):
    """A function whose backward pass needs its inputs and no more, so that vmap can go through it."""

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.save_for_backward(*inputs)


class _LogPY(FromInputs):
    @staticmethod
    def forward(logits: Tensor, labels: Tensor) -> Tensor:
        # Where the label is the maximum, e_y - 1 is exactly 0 and log1p keeps the digits of a small s;
        # elsewhere p_y <= 1/2, and what e_y - 1 + s may lose is small beside z_y - m.
        own, _, _, rest = _split(logits, labels)
        return (own - torch.log1p(rest)).squeeze(-1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        logits, labels = ctx.saved_tensors
        _, rivals, rival_sum, rest = _split(logits, labels)
        direction = torch.where(is_class(labels, logits), rival_sum, -rivals) / (1 + rest)
        return (grad.unsqueeze(-1) * direction).to(logits.dtype), None


def _at_top(logits: Tensor) -> Tensor:
    return is_class(logits.argmax(-1), logits)


def _balanced(gradient: Tensor, at_top: Tensor) -> Tensor:
    """A softmax gradient sums to 0 over a row: the largest class's entry is minus the others' sum.

    Formed directly it would be 1 minus nearly 1 once the row is confident.
    """
    others = torch.where(at_top, 0.0, gradient)
    return torch.where(at_top, -others.sum(-1, keepdim=True), others)


class _LogSoftmax(FromInputs):
    @staticmethod
    def forward(logits: Tensor) -> Tensor:
        shifted = _shifted(logits)
        rest = torch.where(_at_top(logits), 0.0, torch.exp(shifted)).sum(-1, keepdim=True)
        return shifted - torch.log1p(rest)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (logits,) = ctx.saved_tensors
        p = F.softmax(_upcast(logits), -1)
        gradient = _balanced(grad - p * grad.sum(-1, keepdim=True), _at_top(logits))
        return gradient.to(logits.dtype)


class _LogPGiven(FromInputs):
    @staticmethod
    def forward(logits: Tensor, labels: Tensor, transition: Tensor) -> Tensor:
        z, t = _shifted(logits), rows_at(transition.to(compute_dtype(logits)).t(), labels)
        given = torch.logsumexp(z + torch.log(t), -1)
        not_given = torch.logsumexp(z + torch.log1p(-t), -1)
        return -softplus(not_given - given)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        logits, labels, transition = ctx.saved_tensors
        z, t = _shifted(logits), rows_at(transition.to(compute_dtype(logits)).t(), labels)
        # Posterior less prior, r_j - p_j = r_j (T_jy - p_given) / T_jy. The posterior is formed in log
        # space, where a zero of T is exp(-inf) and p_i T_iy may underflow while their ratio does not;
        # T_jy - p_given is taken from the top class, whose own term then drops out of the sum. Masked
        # classes are finite: where all that can give the label are masked, they still have a posterior.
        p, posterior = F.softmax(z, -1), F.softmax(z.clamp(min=-1e30) + torch.log(t), -1)
        top = t.gather(-1, z.argmax(-1, keepdim=True))
        lead = (t - top) - (p * (t - top)).sum(-1, keepdim=True)
        direction = torch.where(t > 0, posterior * lead / torch.where(t > 0, t, 1.0), -p)
        return (grad.unsqueeze(-1) * direction).to(logits.dtype), None, None
