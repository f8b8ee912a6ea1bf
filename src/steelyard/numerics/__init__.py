"""The mathematics of Steelyard: pure functions on tensors, without I/O, clock or global randomness.

Axes live in the name and in the type, the same letters everywhere:

    P   prompts drawn; one group each, so also the groups of a batch
    G   completions of one group
    B   completions of a batch, over all its groups (P·G when no group is ragged)
    T   tokens of a completion, padded on the right
    V   vocabulary
    K   answers of the bandit; members of an ensemble of reward models

`logp_BT` is a (B, T) tensor of log-probs. Log-probs are natural logarithms and in nats. A mask is
True on sampled tokens. Nothing here is imported before it is used: reading the table of variants
does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steelyard.numerics import bandit
    from steelyard.numerics.advantages import (
        ADVANTAGES,
        GROUP_RELATIVE,
        GroupSignal,
        batch_centred,
        batch_standardised,
        group_centred,
        group_signal,
        group_standardised,
        leave_one_out,
        raw,
    )
    from steelyard.numerics.estimators import pass_at_k
    from steelyard.numerics.kl import KL_ESTIMATORS, k1, k2, k3
    from steelyard.numerics.logprobs import token_entropy, token_logprobs
    from steelyard.numerics.mismatch import MISMATCH, MismatchWeights, mismatch_weight
    from steelyard.numerics.optim_parts import AdamWParts, adamw_parts
    from steelyard.numerics.preference import (
        DpoTerms,
        EnsembleReward,
        bradley_terry,
        dpo,
        ensemble_minimum,
        ensemble_reward,
    )
    from steelyard.numerics.reductions import (
        AGGREGATIONS,
        Denominators,
        fixed_length,
        sequence_mean,
        sequence_sum,
        token_mean,
        weighted_sum,
    )
    from steelyard.numerics.surrogates import (
        SURROGATES,
        SurrogateTerms,
        cispo,
        clipped,
        dual_clipped,
        importance,
        policy_gradient,
        sequence_clipped,
        surrogate,
    )
    from steelyard.numerics.values import (
        ValueLossTerms,
        ValueTargets,
        explained_variance,
        gae,
        token_rewards,
        value_loss,
        whitened,
    )
    from steelyard.numerics.variants import VARIANTS, Objective

__all__ = [
    "ADVANTAGES",
    "AGGREGATIONS",
    "GROUP_RELATIVE",
    "KL_ESTIMATORS",
    "MISMATCH",
    "SURROGATES",
    "VARIANTS",
    "AdamWParts",
    "Denominators",
    "DpoTerms",
    "EnsembleReward",
    "GroupSignal",
    "MismatchWeights",
    "Objective",
    "SurrogateTerms",
    "ValueLossTerms",
    "ValueTargets",
    "adamw_parts",
    "bandit",
    "batch_centred",
    "batch_standardised",
    "bradley_terry",
    "cispo",
    "clipped",
    "dpo",
    "dual_clipped",
    "ensemble_minimum",
    "ensemble_reward",
    "explained_variance",
    "fixed_length",
    "gae",
    "group_centred",
    "group_signal",
    "group_standardised",
    "importance",
    "k1",
    "k2",
    "k3",
    "leave_one_out",
    "mismatch_weight",
    "pass_at_k",
    "policy_gradient",
    "raw",
    "sequence_clipped",
    "sequence_mean",
    "sequence_sum",
    "surrogate",
    "token_entropy",
    "token_logprobs",
    "token_mean",
    "token_rewards",
    "value_loss",
    "weighted_sum",
    "whitened",
]

_HOME = {
    "advantages": (
        "ADVANTAGES GROUP_RELATIVE GroupSignal batch_centred batch_standardised group_centred group_signal "
        "group_standardised leave_one_out raw"
    ),
    "estimators": "pass_at_k",
    "kl": "KL_ESTIMATORS k1 k2 k3",
    "logprobs": "token_entropy token_logprobs",
    "preference": "DpoTerms EnsembleReward bradley_terry dpo ensemble_minimum ensemble_reward",
    "reductions": "AGGREGATIONS Denominators fixed_length sequence_mean sequence_sum token_mean weighted_sum",
    "mismatch": "MISMATCH MismatchWeights mismatch_weight",
    "optim_parts": "AdamWParts adamw_parts",
    "surrogates": (
        "SURROGATES SurrogateTerms cispo clipped dual_clipped importance policy_gradient sequence_clipped surrogate"
    ),
    "values": "ValueLossTerms ValueTargets explained_variance gae token_rewards value_loss whitened",
    "variants": "VARIANTS Objective",
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Import the module that defines `name` when it is first asked for (PEP 562)."""
    if name == "bandit":
        return import_module("steelyard.numerics.bandit")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
