"""Log-probs and entropy of the distribution that tokens are sampled from."""

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from steelyard.numerics._bounds import widened


def token_logprobs(
    logits_BTV: Float[Tensor, "B T V"], token_ids_BT: Int[Tensor, "B T"], *, temperature: float
) -> Float[Tensor, "B T"]:
    r"""Return the log-prob of each sampled token at the sampling temperature.

    log π(y_bt) = x_bt[y_bt] − log Σ_v exp x_bt[v],   x_bt = ( z_bt − max_v z_bt[v] ) / τ

    The temperature belongs to the policy: a token sampled at τ and scored at 1 has a ratio other than
    1 before any update. Subtracting the largest logit first keeps the digits that large logits cost.
    Works in float32, in float64 when the logits are float64, one completion at a time: neither pass
    holds a second (B, T, V) tensor beside the logits and their gradient.

    Gradient (e_y − π)/τ flows into `logits_BTV`. A logit of −inf is a token that cannot be sampled.

    Args:
        logits_BTV: z, unnormalised log-probs that predict the tokens at the same place.
        token_ids_BT: y, the sampled ids, in [0, V); padding may hold any valid id.
        temperature: τ, the temperature the tokens were sampled at; finite, above 0.

    Returns:
        log π of each token at τ, nats, at most 0.

    Raises:
        ValueError: If the temperature is not a finite number above 0, or the shapes do not agree.

    Example:
        >>> logits_BTV, token_ids_BT = torch.tensor([[[2.0, 0.0]]]), torch.tensor([[0]])
        >>> round(token_logprobs(logits_BTV, token_ids_BT, temperature=0.5).item(), 5)
        -0.01815
        >>> round(token_logprobs(logits_BTV, token_ids_BT, temperature=1.0).item(), 5)
        -0.12693
    """
    _check_temperature(temperature)
    if logits_BTV.shape[:-1] != token_ids_BT.shape:
        raise ValueError(
            f"logits of shape {tuple(logits_BTV.shape)} do not fit token ids of shape {tuple(token_ids_BT.shape)}: "
            "one row of V logits per token is needed."
        )
    return _apply_token_logprobs(logits_BTV, token_ids_BT.long(), temperature)


def token_entropy(logits_BTV: Float[Tensor, "B T V"], *, temperature: float) -> Float[Tensor, "B T"]:
    r"""Return the entropy of the sampling distribution at each place.

    H_bt = −Σ_v π_bt[v] log π_bt[v]  =  log Σ_v exp x_bt[v] − Σ_v π_bt[v] x_bt[v],   x_bt = ( z_bt − max z_bt )/τ

    Both terms of the right-hand form are sums of numbers of one sign, so large logits cost no digits.
    One completion at a time; without a gradient the extra memory is that of a few (T, V) tensors.

    Gradient flows into `logits_BTV`, and is finite where a logit is −inf (a token that cannot be
    sampled adds 0).

    Args:
        logits_BTV: z, unnormalised log-probs.
        temperature: τ, the sampling temperature; finite, above 0.

    Returns:
        The entropy, nats, in [0, log V].

    Raises:
        ValueError: If the temperature is not a finite number above 0.

    Example:
        >>> round(token_entropy(torch.zeros(1, 1, 4), temperature=1.0).item(), 4)  # log 4
        1.3863
    """
    _check_temperature(temperature)
    rows = [_entropy(_shifted(logits_TV, temperature)) for logits_TV in logits_BTV]
    return torch.stack(rows) if rows else widened(logits_BTV).sum(dim=-1)


class _TokenLogprobs(torch.autograd.Function):
    """Chosen logit less logsumexp, row by row; the backward pass computes the softmax again instead of keeping it."""

    @staticmethod
    def forward(logits_BTV: Tensor, token_ids_BT: Tensor, temperature: float) -> Tensor:
        logp_BT = torch.empty_like(token_ids_BT, dtype=widened(logits_BTV[:0]).dtype)
        for row, ids_T in enumerate(token_ids_BT):
            x_TV = _shifted(logits_BTV[row], temperature)
            logp_BT[row] = x_TV.gather(-1, ids_T.unsqueeze(-1)).squeeze(-1) - x_TV.logsumexp(dim=-1)
        return logp_BT

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:  # noqa: ANN401  torch's own
        logits_BTV, token_ids_BT, ctx.temperature = inputs
        ctx.save_for_backward(logits_BTV, token_ids_BT)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        logits_BTV, token_ids_BT = ctx.saved_tensors
        grad_BTV = torch.empty_like(logits_BTV)
        for row, ids_T in enumerate(token_ids_BT):
            pull_T1 = grad_outputs[0][row].unsqueeze(-1) / ctx.temperature
            pushed_TV = _shifted(logits_BTV[row], ctx.temperature).softmax(dim=-1) * -pull_T1
            grad_BTV[row] = pushed_TV.scatter_add_(-1, ids_T.unsqueeze(-1), pull_T1)
        return grad_BTV, None, None


# torch types `Function.apply` as unknown; this gives it the signature of `forward`.
_apply_token_logprobs = cast(
    "Callable[[Tensor, Tensor, float], Tensor]",
    _TokenLogprobs.apply,  # pyright: ignore[reportUnknownMemberType]
)


def _entropy(x_TV: Tensor) -> Tensor:
    reachable_TV = x_TV.masked_fill(x_TV.isneginf(), 0.0)
    return x_TV.logsumexp(dim=-1) - (x_TV.softmax(dim=-1) * reachable_TV).sum(dim=-1)


def _shifted(logits_TV: Tensor, temperature: float) -> Tensor:
    """(z − max z) / τ, at most 0."""
    wide_TV = widened(logits_TV)
    return (wide_TV - wide_TV.amax(dim=-1, keepdim=True).detach()) / temperature


def _check_temperature(temperature: float) -> None:
    if not (0.0 < temperature < math.inf):
        raise ValueError(
            f"temperature must be a finite number above 0, got {temperature}: greedy decoding has no distribution to "
            "score, and all its samples of a prompt are equal. Sample and score at one temperature above 0."
        )
