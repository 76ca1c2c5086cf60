"""Sampling on the device, launched: greedy and temperature, without filters."""

from __future__ import annotations

import torch

from octavo.kernels.triton._sample import choose_kernel, noise_kernel, peak_kernel
from octavo.kernels.triton.platform import next_power_of_2

_BLOCK = 2048


class SampleWorkspace:
    """Scratch of `sample_rows` for up to `max_rows` rows."""

    def __init__(self, max_rows: int, vocab_size: int, device: torch.device) -> None:
        self.num_parts = -(-vocab_size // _BLOCK)
        shape = (max_rows, self.num_parts)
        self.peaks = torch.empty(shape, dtype=torch.float32, device=device)
        self.ids = torch.empty(shape, dtype=torch.int32, device=device)
        self.values = torch.empty(shape, dtype=torch.float64, device=device)


def sample_rows(
    logits: torch.Tensor,
    rows: torch.Tensor,
    settings: torch.Tensor,
    last_tokens: torch.Tensor,
    chosen: torch.Tensor,
    work: SampleWorkspace,
) -> None:
    """One token per row of logits float32 [num_rows, vocab].

    rows int32 [2, num_rows]: slot, and position of the token that the logits follow; settings int32 [4, num_slots]:
    float32 bits of the temperature (0: greedy), low and high word of the seed, sequence.  Writes the token to
    last_tokens[slot] and chosen[row], both int32; a row whose highest logit is not finite gets 0 and -1.
    """
    num_rows, vocab = logits.shape
    grid, parts = (num_rows, work.num_parts), next_power_of_2(work.num_parts)
    peak_kernel[grid](logits, work.peaks, work.ids, vocab, logits.stride(0), BLOCK=_BLOCK, num_warps=4)
    noise_kernel[grid](
        logits,
        rows,
        settings,
        work.peaks,
        work.ids,
        work.values,
        vocab,
        num_rows,
        settings.shape[1],
        logits.stride(0),
        work.num_parts,
        BLOCK=_BLOCK,
        PARTS=parts,
        num_warps=4,
        enable_fp_fusion=False,
    )
    choose_kernel[(num_rows,)](
        rows, settings, work.peaks, work.ids, work.values, last_tokens, chosen, work.num_parts, PARTS=parts, num_warps=1
    )
