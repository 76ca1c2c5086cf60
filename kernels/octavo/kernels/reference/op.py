"""References of the layer ops, in float32, as their papers write them."""

from __future__ import annotations

import torch


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    out = x.float() @ weight.float().T
    return (out if bias is None else out + bias.float()).to(x.dtype)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Zhang and Sennrich, arXiv:1910.07467."""
    y = x.float()
    return (y / (y.square().mean(-1, keepdim=True) + eps).sqrt() * weight.float()).to(x.dtype)


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """Ba, Kiros and Hinton, arXiv:1607.06450."""
    y = x.float()
    y = y - y.mean(-1, keepdim=True)
    return (y / (y.square().mean(-1, keepdim=True) + eps).sqrt() * weight.float() + bias.float()).to(x.dtype)


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Su et al., arXiv:2104.09864, with dimension i turning with i + head_dim / 2."""
    y, half = x.float(), x.shape[-1] // 2
    turned = torch.cat((-y[..., half:], y[..., :half]), dim=-1)
    return (y * cos.float()[:, None] + turned * sin.float()[:, None]).to(x.dtype)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """Shazeer, arXiv:2002.05202."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (gate * torch.sigmoid(gate) * up).to(gate_up.dtype)
