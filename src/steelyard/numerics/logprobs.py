"""Log-probs and entropy of the distribution that tokens are sampled from."""

import math

from jaxtyping import Float, Int
from torch import Tensor

from steelyard.numerics._bounds import widened


def token_logprobs(
    logits_BTV: Float[Tensor, "B T V"], token_ids_BT: Int[Tensor, "B T"], *, temperature: float
) -> Float[Tensor, "B T"]:
    r"""Return the log-prob of each sampled token at the sampling temperature.

    log π(y_bt) = z_bt[y_bt]/τ − log Σ_v exp( z_bt[v]/τ )

    The temperature belongs to the policy: a token sampled at τ and scored at 1 has a ratio other than
    1 before any update. Gathers one logit and subtracts the logsumexp, so that no second (B, T, V)
    tensor of log-probs is made. Accumulates in float32, or in float64 when the logits are float64.

    Gradient flows into `logits_BTV`. A logit of −inf is a token that cannot be sampled.

    Args:
        logits_BTV: z, unnormalised log-probs that predict the tokens at the same place.
        token_ids_BT: y, the sampled ids, in [0, V); padding may hold any valid id.
        temperature: τ, the temperature the tokens were sampled at; finite, above 0.

    Returns:
        log π of each token at τ, nats, at most 0.

    Raises:
        ValueError: If the temperature is not a finite number above 0, or the shapes do not agree.

    Example:
        >>> import torch
        >>> logits_BTV, token_ids_BT = torch.tensor([[[2.0, 0.0]]]), torch.tensor([[0]])
        >>> round(token_logprobs(logits_BTV, token_ids_BT, temperature=0.5).item(), 5)
        -0.01815
        >>> round(token_logprobs(logits_BTV, token_ids_BT, temperature=1.0).item(), 5)
        -0.12693
    """
    if logits_BTV.shape[:-1] != token_ids_BT.shape:
        raise ValueError(
            f"logits of shape {tuple(logits_BTV.shape)} do not fit token ids of shape {tuple(token_ids_BT.shape)}: "
            "one row of V logits per token is needed."
        )
    scaled_BTV = _at_temperature(logits_BTV, temperature)
    chosen_BT = scaled_BTV.gather(-1, token_ids_BT.long().unsqueeze(-1)).squeeze(-1)
    return chosen_BT - scaled_BTV.logsumexp(dim=-1)


def token_entropy(logits_BTV: Float[Tensor, "B T V"], *, temperature: float) -> Float[Tensor, "B T"]:
    r"""Return the entropy of the sampling distribution at each place.

    H_bt = −Σ_v π_bt[v] log π_bt[v]  =  log Σ_v exp x_v − Σ_v π_v x_v,   x = z/τ − max z/τ

    Both terms of the right-hand form are sums of numbers of one sign, so large logits cost no digits.

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
        >>> import torch
        >>> round(token_entropy(torch.zeros(1, 1, 4), temperature=1.0).item(), 4)  # log 4
        1.3863
    """
    scaled_BTV = _at_temperature(logits_BTV, temperature)
    x_BTV = scaled_BTV - scaled_BTV.amax(dim=-1, keepdim=True).detach()
    reachable_BTV = x_BTV.masked_fill(x_BTV.isneginf(), 0.0)
    return x_BTV.logsumexp(dim=-1) - (x_BTV.softmax(dim=-1) * reachable_BTV).sum(dim=-1)


def _at_temperature(logits_BTV: Tensor, temperature: float) -> Tensor:
    if not (0.0 < temperature < math.inf):
        raise ValueError(
            f"temperature must be a finite number above 0, got {temperature}: greedy decoding has no distribution to "
            "score, and all its samples of a prompt are equal. Sample and score at one temperature above 0."
        )
    # Dividing by 1 would change no bit and copy the largest tensor of the update.
    return widened(logits_BTV) if temperature == 1.0 else widened(logits_BTV) / temperature
