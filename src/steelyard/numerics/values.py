"""Advantages per token from a value network, as PPO uses them, and the loss that trains it.

The order of a step: rewards per token (`token_rewards`), advantages and returns (`gae`), whitening over
the batch (`whitened`), then per micro-batch the surrogate and `value_loss`.

V_t is the value of the state *before* token t: what is still to come, token t included. The sampled
tokens of a row are a prefix of it. A completion that was cut off at the length limit is treated as
ended, with V = 0 behind its last token, as TRL, verl and OpenRLHF do: nothing is bootstrapped.

Live entries must be finite, and below √max / 16 of the dtype that is worked in (float32: 1.15e18;
float64: 1e100), so that no square or sum overflows; masked entries may be nan. Work is done in float64
when an input is float64, in float32 otherwise.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from steelyard.numerics._bounds import widened
from steelyard.numerics._checks import check_number
from steelyard.numerics._groups import REWARD_LIMIT, ROUNDING_STEPS, check_resolution, constant
from steelyard.numerics.advantages import STD_DELTA


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueTargets:
    """What a value network makes of the rewards of a batch; both detached, 0 at masked places."""

    advantages_BT: Float[Tensor, "B T"]
    """A, in reward units, not whitened."""
    returns_BT: Float[Tensor, "B T"]
    """A + V, the target of the value network, in reward units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueLossTerms:
    """The per-token terms of the value loss, and what its metric needs."""

    term_BT: Float[Tensor, "B T"]
    """To be minimised, in squared reward units; exactly 0 at masked places, with gradient exactly 0."""
    clipped_BT: Bool[Tensor, "B T"]
    """True where the flat branch is the active one, so that the token does not pull on its value."""


def token_rewards(
    rewards_B: Float[Tensor, " B"], kl_BT: Float[Tensor, "B T"], mask_BT: Bool[Tensor, "B T"], *, kl_coef: float
) -> Float[Tensor, "B T"]:
    r"""Return the reward of each token: the KL penalty on every one, the completion's reward on its last.

    r_bt = −β kl_bt + [t is the last live token of b] r_b

    InstructGPT: arXiv:2203.02155. kl_bt is the k1 estimate of KL(π_old ‖ π_ref), logp_old − logp_ref at the
    sampled token: one number per token, unbiased, of either sign. Summed over t, r_bt is r_b − β Σ_t k1_bt,
    the penalised reward of the whole completion, which RLOO uses. A row without a live token has nowhere to
    put its reward and is all 0.

    No gradient flows into any argument. Masked entries of `kl_BT`, and rewards of rows without a live token,
    may be nan.

    Args:
        rewards_B: r, finite where the row has a live token. Mask out the rows of unscored completions.
        kl_BT: k1 of each sampled token, nats.
        mask_BT: True on sampled tokens.
        kl_coef: β, at least 0.

    Returns:
        One reward per token; 0 at masked places.

    Raises:
        ValueError: If the shapes do not agree, a live entry is not finite, or β is out of its range.

    Example:
        >>> mask_BT = torch.tensor([[True, True, False]])
        >>> token_rewards(torch.tensor([1.0]), torch.tensor([[0.5, -0.25, 9.0]]), mask_BT, kl_coef=0.5).tolist()
        [[-0.25, 1.125, 0.0]]
    """
    check_number("kl_coef", kl_coef)
    _check_shapes({"KL": kl_BT}, mask_BT)
    if not rewards_B.is_floating_point() or rewards_B.shape != mask_BT.shape[:1]:
        raise ValueError(
            f"rewards must be floating point, one per row, got {rewards_B.dtype} of shape {tuple(rewards_B.shape)} "
            f"for {mask_BT.shape[0]} rows"
        )
    dtype = _working_dtype(rewards_B, kl_BT)
    live_after_BT = mask_BT.flip(1).cumsum(1).flip(1)
    last_BT = mask_BT & (live_after_BT == 1)
    reward_BT = _live("rewards", rewards_B.detach().unsqueeze(1).expand(mask_BT.shape), last_BT, dtype)
    return reward_BT - kl_coef * _live("KL", kl_BT.detach(), mask_BT, dtype)


def gae(
    rewards_BT: Float[Tensor, "B T"],
    values_BT: Float[Tensor, "B T"],
    mask_BT: Bool[Tensor, "B T"],
    *,
    gamma: float,
    lam: float,
) -> ValueTargets:
    r"""Return the generalised advantage estimate of each token, and the target of the value network.

    A_bt = Σ_{l ≥ 0} (γλ)^l δ_{b,t+l},   δ_bt = r_bt + γ V_{b,t+1} − V_bt,   returns_bt = A_bt + V_bt

    GAE: arXiv:1506.02438 eq. 16. V is 0 behind the last live token, also where the completion was cut off.

    λ = 1 gives the discounted rewards to go less V_t, unbiased for γ = 1; λ = 0 gives δ, which carries the
    error of V and the least variance. The returns are made of A before whitening.

    No gradient flows into any argument: the value network is trained by `value_loss` alone. Masked entries
    may be nan. Rows do not see each other: a batch may be cut between them.

    Args:
        rewards_BT: r, as from `token_rewards`.
        values_BT: V_t of the network that was current when the batch was drawn, in reward units.
        mask_BT: True on sampled tokens, which must be a prefix of each row.
        gamma: γ, discount per token, in [0, 1].
        lam: λ, in [0, 1].

    Returns:
        Advantages and returns, detached, 0 at masked places.

    Raises:
        ValueError: If the shapes do not agree, the live tokens of a row are no prefix, a live entry is not
            finite, or γ or λ is out of its range.

    Example:
        >>> rewards_BT, values_BT = torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([[0.5, 0.5, 0.5]])
        >>> out = gae(rewards_BT, values_BT, torch.ones(1, 3).bool(), gamma=1.0, lam=0.5)
        >>> out.advantages_BT.tolist(), out.returns_BT.tolist()
        ([[0.125, 0.25, 0.5]], [[0.625, 0.75, 1.0]])
    """
    check_number("gamma", gamma)
    check_number("lam", lam)
    _check_shapes({"rewards": rewards_BT, "values": values_BT}, mask_BT)
    _check_prefix(mask_BT)
    dtype = _working_dtype(rewards_BT, values_BT)
    live_rewards_BT = _live("rewards", rewards_BT.detach(), mask_BT, dtype)
    live_values_BT = _live("values", values_BT.detach(), mask_BT, dtype)
    # Behind the last live token rewards and values are 0, so δ and A are exactly 0 there too.
    next_values_BT = torch.nn.functional.pad(live_values_BT, (0, 1))[:, 1:]
    delta_BT = live_rewards_BT + gamma * next_values_BT - live_values_BT
    advantages_BT = torch.zeros_like(delta_BT)
    carried_B = delta_BT.new_zeros(len(delta_BT))
    for t in reversed(range(delta_BT.shape[1])):
        carried_B = delta_BT[:, t] + gamma * lam * carried_B
        advantages_BT[:, t] = carried_B
    return ValueTargets(advantages_BT=advantages_BT, returns_BT=advantages_BT + live_values_BT)


def whitened(
    x_BT: Float[Tensor, "B T"], mask_BT: Bool[Tensor, "B T"], *, ddof: int, resolution: float
) -> Float[Tensor, "B T"]:
    r"""Return the live entries with mean 0 and deviation 1 over the batch, as PPO does with its advantages.

    y_bt = (x_bt − mean) / (std + δ),   mean = (1/N) Σ x,   std² = (1/(N − ddof)) Σ (x − mean)²

    N counts the live tokens of everything handed in: call it once per batch, before any cut into
    micro-batches or ranks; whitening each piece by itself gives other numbers. Long completions weigh more
    in mean and deviation than short ones. δ is `STD_DELTA` = 1e-6, added after the root. ddof is 0 or 1 by
    choice; with N in the thousands it hardly matters.

    The sign of an advantage may change: a batch in which every token beat its value has some pushed down.

    No gradient flows into `x_BT`; masked entries may be nan. Sums run in float64.

    Args:
        x_BT: Numbers to whiten, mostly advantages.
        mask_BT: True on sampled tokens.
        ddof: 0 (population) or 1 (sample).
        resolution: Rounding unit of the dtype in which x was computed, above 0.

    Returns:
        Pure numbers; 0 at masked places, and everywhere when there are fewer than two live tokens or
        max − min ≤ 8 · resolution · max|x|.

    Raises:
        ValueError: If the shapes do not agree, a live entry is not finite, or ddof or resolution is out of
            its range.

    Example:
        >>> x_BT, mask_BT = torch.tensor([[3.0, 1.0], [1.0, 9.0]]), torch.tensor([[True, True], [True, False]])
        >>> [[round(y, 3) for y in row] for row in whitened(x_BT, mask_BT, ddof=0, resolution=1.19e-7).tolist()]
        [[1.414, -0.707], [-0.707, 0.0]]
    """
    check_number("ddof", ddof)
    check_resolution(resolution)
    _check_shapes({"x": x_BT}, mask_BT)
    dtype = _working_dtype(x_BT)
    live_BT = _live("x", x_BT.detach(), mask_BT, dtype).double()
    live_N = live_BT[mask_BT]
    if _too_alike(live_N, resolution):
        return torch.zeros_like(live_BT, dtype=dtype)
    white_BT = (live_BT - live_N.mean()) / (live_N.std(correction=ddof) + STD_DELTA)
    return white_BT.where(mask_BT, 0.0).to(dtype)


def value_loss(
    values_BT: Float[Tensor, "B T"],
    values_old_BT: Float[Tensor, "B T"],
    returns_BT: Float[Tensor, "B T"],
    mask_BT: Bool[Tensor, "B T"],
    *,
    clip: float,
) -> ValueLossTerms:
    r"""Return half the squared error of the value of each token, clipped as in PPO.

    term_bt = ½ max( (V_bt − R_bt)² , (V^clip_bt − R_bt)² ),   V^clip = V_old + clamp(V − V_old, −c, c)

    PPO's reference code and InstructGPT; not in arXiv:1707.06347. The larger of the two errors counts, so a
    value that has moved more than c *towards* its return stops, and one that has moved away is pulled back
    in full. The terms are to be minimised; the caller adds them up with the weights of one of
    `steelyard.numerics.reductions`, whose denominator it owns. The ½ is here, not in a coefficient.

    Gradient V − R flows into `values_BT` only, and is exactly 0 in the flat branch and at masked places,
    whose entries may be nan. Where the branches tie (V at the edge of the interval, or the two errors
    equal, within 8 rounding units) the unclipped branch counts and the gradient flows.

    Args:
        values_BT: V_t of the network being trained, in reward units.
        values_old_BT: V_t when the batch was drawn.
        returns_BT: R, as from `gae`.
        mask_BT: True on sampled tokens.
        clip: c, above 0, in reward units; `math.inf` for no clip.

    Returns:
        The terms, and where the flat branch was active.

    Raises:
        ValueError: If the shapes do not agree, a live entry is not finite, or c is not above 0.

    Example:
        >>> old_BT, returns_BT, mask_BT = torch.zeros(1, 2), torch.tensor([[1.0, -1.0]]), torch.ones(1, 2).bool()
        >>> out = value_loss(torch.tensor([[0.5, 0.5]]), old_BT, returns_BT, mask_BT, clip=0.25)
        >>> out.term_BT.tolist(), out.clipped_BT.tolist()
        ([[0.28125, 1.125]], [[True, False]])
    """
    _check_clip(clip)
    _check_shapes({"values": values_BT, "old values": values_old_BT, "returns": returns_BT}, mask_BT)
    dtype = _working_dtype(values_BT, values_old_BT, returns_BT)
    new_BT = _live("values", values_BT, mask_BT, dtype)
    old_BT = _live("old values", values_old_BT.detach(), mask_BT, dtype)
    target_BT = _live("returns", returns_BT.detach(), mask_BT, dtype)
    fixed_BT = new_BT.detach()
    moved_BT = fixed_BT - old_BT
    error_BT = new_BT - target_BT
    error_clip_BT = old_BT + moved_BT.clamp(-clip, clip) - target_BT
    largest_BT = torch.maximum(torch.maximum(fixed_BT.abs(), old_BT.abs()), target_BT.abs())
    slack_BT = ROUNDING_STEPS * torch.finfo(dtype).eps * largest_BT
    # Selected by name: torch.max shares the gradient out at ties.
    flat_BT = (moved_BT.abs() > clip + slack_BT) & (error_clip_BT.abs() > error_BT.detach().abs() + slack_BT)
    return ValueLossTerms(term_BT=0.5 * torch.where(flat_BT, error_clip_BT, error_BT) ** 2, clipped_BT=flat_BT)


def explained_variance(
    values_BT: Float[Tensor, "B T"], returns_BT: Float[Tensor, "B T"], mask_BT: Bool[Tensor, "B T"]
) -> float | None:
    r"""Return the share of the variance of the returns that the values explain.

    1 − Var(R − V) / Var(R),   over the live tokens

    1 is a perfect value network up to a constant, 0 one that knows nothing, below 0 one that is worse than
    that. Both variances have the same divisor, which cancels.

    No gradient flows; masked entries may be nan.

    Args:
        values_BT: V_t, before the update, in reward units.
        returns_BT: R, as from `gae`.
        mask_BT: True on sampled tokens.

    Returns:
        A number of at most 1; None where it is undefined: fewer than two live tokens, or returns that are
        constant to 8 rounding units of their dtype.

    Raises:
        ValueError: If the shapes do not agree, or a live entry is not finite.

    Example:
        >>> returns_BT, mask_BT = torch.tensor([[0.0, 1.0, 2.0]]), torch.ones(1, 3).bool()
        >>> explained_variance(torch.tensor([[1.0, 1.5, 2.0]]), returns_BT, mask_BT)
        0.75
    """
    _check_shapes({"values": values_BT, "returns": returns_BT}, mask_BT)
    dtype = _working_dtype(values_BT, returns_BT)
    values_N = _live("values", values_BT.detach(), mask_BT, dtype)[mask_BT].double()
    returns_N = _live("returns", returns_BT.detach(), mask_BT, dtype)[mask_BT].double()
    if _too_alike(returns_N, torch.finfo(returns_BT.dtype).eps):
        return None
    variance = returns_N.var(correction=0).item()
    if variance == 0.0:  # squares of deviations below about 1e-154 underflow
        return None
    return 1.0 - (returns_N - values_N).var(correction=0).item() / variance


def _working_dtype(*tensors: Tensor) -> torch.dtype:
    return torch.float64 if any(x.dtype == torch.float64 for x in tensors) else torch.float32


def _live(name: str, x_BT: Tensor, mask_BT: Tensor, dtype: torch.dtype) -> Tensor:
    """Return x in a dtype, 0 where the mask is false, whatever stands there; refuse live entries past the limit."""
    limit = min(REWARD_LIMIT, math.sqrt(torch.finfo(dtype).max) / 16)
    live_BT = widened(x_BT).to(dtype).where(mask_BT, 0.0)
    bad_BT = ~(live_BT.detach().abs() <= limit)
    if bool(bad_BT.any()):
        row, place = (int(axis[0]) for axis in bad_BT.nonzero(as_tuple=True))
        raise ValueError(
            f"{name} must be finite (|x| ≤ {limit:.3g}) at live tokens, got {float(x_BT[row, place])} in row {row}, "
            f"token {place}; mask out a row that could not be judged, and stop a value network that has diverged"
        )
    return live_BT


def _too_alike(live_N: Tensor, resolution: float) -> bool:
    return len(live_N) < 2 or bool(constant(live_N.min(), live_N.max(), resolution=resolution))


def _check_shapes(tensors_BT: dict[str, Tensor], mask_BT: Tensor) -> None:
    wrong = {name: x for name, x in tensors_BT.items() if x.shape != mask_BT.shape or not x.is_floating_point()}
    if wrong or mask_BT.dim() != 2 or mask_BT.dtype != torch.bool:
        found = ", ".join(f"{name} {tuple(x.shape)} {x.dtype}" for name, x in tensors_BT.items())
        raise ValueError(
            f"{', '.join(tensors_BT)} must be floating point and the mask bool, all of one shape (B, T), got {found}, "
            f"mask {tuple(mask_BT.shape)} {mask_BT.dtype}"
        )


def _check_prefix(mask_BT: Tensor) -> None:
    late_B = (mask_BT[:, 1:] & ~mask_BT[:, :-1]).any(dim=1)
    if bool(late_B.any()):
        row = int(late_B.nonzero()[0])
        raise ValueError(
            f"the live tokens of row {row} are not a prefix of it: V of the next token would be read across a gap. Align "
            "completions at their first sampled token and pad on the right"
        )


def _check_clip(clip: object) -> None:
    if isinstance(clip, bool) or not isinstance(clip, int | float) or not clip > 0:
        raise ValueError(f"clip must be above 0, in reward units, or math.inf for none; got {clip!r}")
