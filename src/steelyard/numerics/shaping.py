"""Shaping of rewards by length."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def soft_overlong(lengths_B: Int[Tensor, " B"], *, max_length: int, buffer: int, penalty: float) -> Float[Tensor, " B"]:
    r"""Return what each completion loses for coming close to the length limit, as DAPO's soft overlong punishment.

    s_b = −penalty · clip( (T_b − (L_max − buffer)) / buffer , 0, 1 )

    DAPO: arXiv:2503.14476 eq. 13, with penalty 1. There a completion may run past the length at which the whole
    penalty is reached; here the sampler's limit is that length, and a completion cut at it loses the whole of it.

    It is added to the reward before the advantages, so it tells a long right answer from a short one. It is no part
    of the question whether a group has a mixed outcome.

    Args:
        lengths_B: T, sampled tokens of each completion, in [0, L_max].
        max_length: L_max, the limit on sampled tokens, at least 1.
        buffer: Last tokens before the limit over which the penalty rises, in [1, L_max].
        penalty: What a completion at the limit loses, in reward units, finite, above 0.

    Returns:
        The additions to the reward, in [−penalty, 0], float64.

    Raises:
        ValueError: If a length exceeds the limit, or an argument is out of its range.

    Example:
        >>> soft_overlong(torch.tensor([10, 80, 90, 100]), max_length=100, buffer=20, penalty=1.0).tolist()
        [-0.0, -0.0, -0.5, -1.0]
    """
    if not 1 <= buffer <= max_length:
        raise ValueError(f"buffer must lie in [1, max_length = {max_length}], got {buffer}")
    if not 0.0 < penalty < float("inf"):
        raise ValueError(f"penalty must be finite and above 0, got {penalty}")
    if bool(((lengths_B < 0) | (lengths_B > max_length)).any()):
        found = [int(length) for length in lengths_B]
        raise ValueError(f"lengths must lie in [0, max_length = {max_length}], got {found}")
    over_B = (lengths_B - (max_length - buffer)).to(torch.float64) / buffer
    return -penalty * over_B.clamp(0.0, 1.0)
