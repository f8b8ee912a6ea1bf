"""Learning from pairs: DPO, the loss of a reward model, and the reward of an ensemble of them.

A pair is a prompt with a chosen and a rejected completion; B counts pairs here, and completions in the ensemble.
DPO is the Bradley–Terry loss of the implicit reward r = β (log π_θ − log π_ref), so that the policy is its own reward
model. In all of them only differences within a pair matter: what a prompt adds to both sides cancels.

Every input must be finite, and below √max / 16 of the dtype that is worked in (float32: 1.15e18; float64: 1e100), so
that no sum or square overflows: nan and infinities are refused, with the place. Leave out a pair that could not be
scored. float16 and bfloat16 are computed in float32.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from steelyard.numerics._bounds import widened
from steelyard.numerics._checks import check_number
from steelyard.numerics._groups import REWARD_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class DpoTerms:
    """The loss of each pair, and what the policy thinks of it; only `term_B` carries a gradient."""

    term_B: Float[Tensor, " B"]
    """To be minimised, nats."""
    chosen_reward_B: Float[Tensor, " B"]
    """Implicit reward of the chosen completion, β (log π_θ − log π_ref), nats; 0 where policy = reference."""
    rejected_reward_B: Float[Tensor, " B"]
    """The same of the rejected one."""
    margin_B: Float[Tensor, " B"]
    """Chosen less rejected; above 0 where the pair is ranked rightly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleReward:
    """What several reward models make of each completion; nothing here carries a gradient."""

    reward_B: Float[Tensor, " B"]
    """The reward to train on, in reward units."""
    disagreement_B: Float[Tensor, " B"]
    """Population deviation over the members (ddof 0), in reward units; 0 for a single member."""


def dpo(
    chosen_logp_B: Float[Tensor, " B"],
    rejected_logp_B: Float[Tensor, " B"],
    chosen_ref_B: Float[Tensor, " B"],
    rejected_ref_B: Float[Tensor, " B"],
    *,
    beta: float,
) -> DpoTerms:
    r"""Return the loss of direct preference optimisation for each pair, with the implicit rewards.

    term_b = −log σ( r_w − r_l ),   r = β (logp − ref),   w chosen, l rejected

    DPO: Rafailov 2023, arXiv:2305.18290 eq. 7. Each log-prob is the sum over the tokens of the completion, end token
    included and prompt excluded, which is the caller's: a mean per token is another loss. Sum in float32 or better.

    There is no denominator here. The caller divides by the pairs of the whole optimizer step, over every micro-batch
    and rank, so that adding up micro-batches gives the one-batch result.

    Gradient −β σ(−margin) flows into `chosen_logp_B` and the opposite into `rejected_logp_B`; none into the reference,
    and none out of the reported rewards and margins. It never exceeds β, and is β/2 where policy = reference, with
    margin 0 and loss log 2 exactly. Computed through log-sigmoid: value and gradient are finite at any margin, and a
    pair ranked wrongly by far pulls with β.

    Args:
        chosen_logp_B: Σ log π_θ of the tokens of the chosen completion, nats.
        rejected_logp_B: The same of the rejected completion.
        chosen_ref_B: Σ log π_ref of the same tokens as `chosen_logp_B`, nats.
        rejected_ref_B: Σ log π_ref of the same tokens as `rejected_logp_B`, nats.
        beta: β, in (0, 1e6]: how dearly a distance from the reference is paid.

    Returns:
        The terms, and the detached rewards and margins.

    Raises:
        ValueError: If the shapes do not agree, a log-prob is not finite, or β is out of its range.

    Example:
        >>> logp_w, logp_l = torch.tensor([-10.0]), torch.tensor([-11.0])
        >>> out = dpo(logp_w, logp_l, torch.tensor([-12.0]), torch.tensor([-10.0]), beta=0.5)
        >>> out.chosen_reward_B.item(), out.rejected_reward_B.item(), round(out.term_B.item(), 4)
        (1.0, -0.5, 0.2014)
    """
    check_number("beta", beta)
    named = {
        "chosen log-prob": chosen_logp_B,
        "rejected log-prob": rejected_logp_B,
        "chosen reference log-prob": chosen_ref_B.detach(),
        "rejected reference log-prob": rejected_ref_B.detach(),
    }
    chosen_B, rejected_B, chosen_anchor_B, rejected_anchor_B = _finite_pairs(named)
    chosen_reward_B = beta * (chosen_B - chosen_anchor_B)
    rejected_reward_B = beta * (rejected_B - rejected_anchor_B)
    margin_B = chosen_reward_B - rejected_reward_B
    return DpoTerms(
        term_B=_pair_loss(margin_B),
        chosen_reward_B=chosen_reward_B.detach(),
        rejected_reward_B=rejected_reward_B.detach(),
        margin_B=margin_B.detach(),
    )


def bradley_terry(chosen_reward_B: Float[Tensor, " B"], rejected_reward_B: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    r"""Return the loss of a reward model for each pair.

    term_b = −log σ( r_w − r_l ),   w chosen, l rejected

    Bradley & Terry 1952: σ(r_w − r_l) is the chance that w is preferred. As the loss of a reward model: Stiennon 2020,
    arXiv:2009.01325; Ouyang 2022, arXiv:2203.02155 eq. 1. Only differences are learnt: a constant added to every reward
    of a prompt changes nothing, so rewards of two models, or of two prompts, have no common zero.

    There is no denominator here. The caller divides by the pairs of the whole optimizer step.

    Gradient −σ(r_l − r_w) flows into `chosen_reward_B` and the opposite into `rejected_reward_B`; finite at any margin.

    Args:
        chosen_reward_B: r_w, one number per pair.
        rejected_reward_B: r_l of the same pair.

    Returns:
        One term per pair, nats, to be minimised; log 2 where the rewards are equal.

    Raises:
        ValueError: If the shapes do not agree, or a reward is not finite.

    Example:
        >>> [round(x, 4) for x in bradley_terry(torch.tensor([2.0, 1.0]), torch.tensor([0.5, 1.0])).tolist()]
        [0.2014, 0.6931]
    """
    named = {"chosen reward": chosen_reward_B, "rejected reward": rejected_reward_B}
    chosen_B, rejected_B = _finite_pairs(named)
    return _pair_loss(chosen_B - rejected_B)


def ensemble_reward(rewards_KB: Float[Tensor, "K B"], *, penalty: float) -> EnsembleReward:
    r"""Return the mean reward of an ensemble, less a penalty for disagreement.

    reward_b = mean_k r_kb − λ std_k r_kb,   std² = (1/K) Σ_k (r_kb − mean)²

    Coste 2023, arXiv:2310.02743, in its uncertainty-weighted form, with the deviation in place of the variance. A policy
    finds what one member overrates; where members disagree it is paid less. ddof is 0, and nothing is divided by the
    deviation, so no δ is needed; K = 1 has deviation 0. λ = 0 is the mean.

    No gradient flows into `rewards_KB`.

    Args:
        rewards_KB: One row per member, on a common scale: standardise each member on the same completions first.
        penalty: λ, finite, at least 0.

    Returns:
        The reward and the disagreement of each completion.

    Raises:
        ValueError: If there is no member, a reward is not finite, or λ is out of its range.

    Example:
        >>> out = ensemble_reward(torch.tensor([[1.0, 2.0], [3.0, 2.0]]), penalty=0.5)
        >>> out.reward_B.tolist(), out.disagreement_B.tolist()
        ([1.5, 2.0], [1.0, 0.0])
    """
    check_number("penalty", penalty)
    members_KB = _members(rewards_KB)
    disagreement_B = _deviation(members_KB)
    return EnsembleReward(reward_B=members_KB.mean(dim=0) - penalty * disagreement_B, disagreement_B=disagreement_B)


def ensemble_minimum(rewards_KB: Float[Tensor, "K B"]) -> EnsembleReward:
    r"""Return the lowest reward that a member of an ensemble gives.

    reward_b = min_k r_kb

    Coste 2023, arXiv:2310.02743, worst-case optimisation. It falls with every member added, and needs no λ. The
    disagreement is that of `ensemble_reward`.

    No gradient flows into `rewards_KB`.

    Args:
        rewards_KB: One row per member, on a common scale.

    Returns:
        The reward and the disagreement of each completion.

    Raises:
        ValueError: If there is no member, or a reward is not finite.

    Example:
        >>> out = ensemble_minimum(torch.tensor([[1.0, 2.0], [3.0, 2.0]]))
        >>> out.reward_B.tolist(), out.disagreement_B.tolist()
        ([1.0, 2.0], [1.0, 0.0])
    """
    members_KB = _members(rewards_KB)
    return EnsembleReward(reward_B=members_KB.amin(dim=0), disagreement_B=_deviation(members_KB))


def _deviation(members_KB: Tensor) -> Tensor:
    return (members_KB - members_KB.mean(dim=0)).square().mean(dim=0).sqrt()


def _pair_loss(margin_B: Tensor) -> Tensor:
    # softplus would switch to a straight line at 20, which costs digits in float64.
    return -torch.nn.functional.logsigmoid(margin_B)


def _finite_pairs(named: dict[str, Tensor]) -> list[Tensor]:
    shapes = {x.shape for x in named.values()}
    if len(shapes) != 1 or any(x.dim() != 1 or not x.is_floating_point() for x in named.values()):
        found = ", ".join(f"{name} {tuple(x.shape)} {x.dtype}" for name, x in named.items())
        raise ValueError(f"a pair has one number of each kind, all floating point and of one shape (B,); got {found}")
    return [_finite(name, x_B, place="pair") for name, x_B in named.items()]


def _members(rewards_KB: Tensor) -> Tensor:
    if rewards_KB.dim() != 2 or not rewards_KB.is_floating_point() or len(rewards_KB) == 0:
        raise ValueError(
            f"an ensemble needs rewards of shape (K, B) with K ≥ 1 members, floating point; got "
            f"{tuple(rewards_KB.shape)} {rewards_KB.dtype}"
        )
    rows = rewards_KB.detach().unbind()
    return torch.stack([_finite(f"reward of member {k}", row_B, place="completion") for k, row_B in enumerate(rows)])


def _finite(name: str, x_B: Tensor, *, place: str) -> Tensor:
    """Return x, widened; refuse what is not finite or past the limit."""
    wide_B = widened(x_B)
    limit = min(REWARD_LIMIT, math.sqrt(torch.finfo(wide_B.dtype).max) / 16)
    bad_B = ~(wide_B.detach().abs() <= limit)
    if bool(bad_B.any()):
        first = int(bad_B.nonzero()[0])
        raise ValueError(
            f"{name} must be finite (|x| ≤ {limit:.3g}), got {x_B[first].item()} at {place} {first}; leave out a {place} "
            "that could not be scored, and stop a model that has diverged"
        )
    return wide_B
