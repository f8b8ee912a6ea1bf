r"""The softmax policy over a handful of answers: policy gradients where everything can be written out.

One prompt, K answers, one logit each; a completion is one answer, so its log-prob is one number:

    π = softmax(z),   J(z) = E[r] = Σ_y π(y) r(y),   ∇_z log π(y) = e_y − π,   ∇_z J = π ⊙ (r − J)

The lesson and the tests stand on it.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

LESSON_PROMPT = "17 × 24"
"""The lesson's question."""

LESSON_ANSWERS = (408, 407, 410, 404, 400, 380)
"""Its six candidate answers, the right one first, the worst last."""

LESSON_REWARDS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.4)
"""Their rewards: partial credit for closeness. From a uniform start J = 0.7333."""


def policy(logits_K: Float[Tensor, " K"]) -> Float[Tensor, " K"]:
    r"""Return the probability of each answer.

    π = softmax(z)

    Args:
        logits_K: z, one logit per answer.

    Returns:
        Probabilities that sum to 1.

    Example:
        >>> policy(torch.zeros(4)).tolist()
        [0.25, 0.25, 0.25, 0.25]
    """
    return logits_K.softmax(dim=0)


def expected_reward(logits_K: Float[Tensor, " K"], rewards_K: Float[Tensor, " K"]) -> Float[Tensor, ""]:
    r"""Return the expected reward of the policy.

    J = Σ_y π(y) r(y)

    Args:
        logits_K: z, one logit per answer.
        rewards_K: r, the reward of each answer.

    Returns:
        A scalar, in reward units.

    Example:
        >>> round(expected_reward(torch.zeros(6), torch.tensor(LESSON_REWARDS)).item(), 4)
        0.7333
    """
    return policy(logits_K) @ rewards_K


def exact_gradient(logits_K: Float[Tensor, " K"], rewards_K: Float[Tensor, " K"]) -> Float[Tensor, " K"]:
    r"""Return the gradient of the expected reward, which sampling estimates.

    ∇_z J = π ⊙ (r − J)

    Args:
        logits_K: z, one logit per answer.
        rewards_K: r, the reward of each answer.

    Returns:
        The gradient; its entries sum to 0.

    Example:
        >>> exact_gradient(torch.zeros(2), torch.tensor([1.0, 0.0])).tolist()
        [0.25, -0.25]
    """
    return policy(logits_K) * (rewards_K - expected_reward(logits_K, rewards_K))


def sample(logits_K: Float[Tensor, " K"], *, n_samples: int, generator: torch.Generator) -> Int[Tensor, " B"]:
    r"""Draw answers from the policy, independently.

    y_b ~ π

    Args:
        logits_K: z, one logit per answer.
        n_samples: B, at least 1.
        generator: Where the randomness comes from.

    Returns:
        Indices of answers, in [0, K).

    Example:
        >>> sample(torch.tensor([0.0, 99.0]), n_samples=3, generator=torch.Generator().manual_seed(0)).tolist()
        [1, 1, 1]
    """
    return torch.multinomial(policy(logits_K), n_samples, replacement=True, generator=generator)


def reinforce_gradient(
    logits_K: Float[Tensor, " K"], answers_B: Int[Tensor, " B"], advantages_B: Float[Tensor, " B"]
) -> Float[Tensor, " K"]:
    r"""Return the REINFORCE estimate of the gradient from sampled answers.

    g = (1/B) Σ_b A_b (e_{y_b} − π)

    Williams 1992. With A = r − b it is unbiased for every b that does not depend on y_b.

    Args:
        logits_K: z, the policy that sampled.
        answers_B: y, the answers it drew.
        advantages_B: A, how much better than the baseline each of them did.

    Returns:
        An estimate of ∇_z J; its entries sum to 0.

    Example:
        >>> reinforce_gradient(torch.zeros(2), torch.tensor([0]), torch.tensor([1.0])).tolist()
        [0.5, -0.5]
    """
    pulled_K = torch.zeros_like(logits_K).index_add(0, answers_B, advantages_B)
    return (pulled_K - advantages_B.sum() * policy(logits_K)) / len(answers_B)


def reinforce_step(
    logits_K: Float[Tensor, " K"],
    answers_B: Int[Tensor, " B"],
    advantages_B: Float[Tensor, " B"],
    *,
    learning_rate: float,
) -> Float[Tensor, " K"]:
    r"""Return the logits after one REINFORCE step.

    z ← z + η · (1/B) Σ_b A_b (e_{y_b} − π)

    Args:
        logits_K: z, the policy that sampled.
        answers_B: y, the answers it drew.
        advantages_B: A, how much better than the baseline each of them did.
        learning_rate: η.

    Returns:
        The new logits; the old ones are left as they were.

    Example:
        >>> reinforce_step(torch.zeros(2), torch.tensor([0]), torch.tensor([1.0]), learning_rate=1.0).tolist()
        [0.5, -0.5]
    """
    return logits_K + learning_rate * reinforce_gradient(logits_K, answers_B, advantages_B)


def gradient_variance(
    logits_K: Float[Tensor, " K"], rewards_K: Float[Tensor, " K"], *, baseline: float
) -> Float[Tensor, ""]:
    r"""Return the trace of the covariance of the one-sample gradient estimate.

    tr Cov = E[ (r − b)² ‖e_y − π‖² ] − ‖∇_z J‖²

    Exact, by summing over the K answers. The mean of B samples has 1/B of it.

    Args:
        logits_K: z, one logit per answer.
        rewards_K: r, the reward of each answer.
        baseline: b, any constant.

    Returns:
        The variance, in squared reward units.

    Example:
        >>> gradient_variance(torch.zeros(2), torch.tensor([1.0, 0.0]), baseline=0.5).item()
        0.0
    """
    second_moment = policy(logits_K) @ ((rewards_K - baseline) ** 2 * _score_norm(logits_K))
    return second_moment - exact_gradient(logits_K, rewards_K).square().sum()


def best_baseline(logits_K: Float[Tensor, " K"], rewards_K: Float[Tensor, " K"]) -> Float[Tensor, ""]:
    r"""Return the constant baseline with the least gradient variance.

    b* = E[ r ‖e_y − π‖² ] / E[ ‖e_y − π‖² ]

    Close to E[r], and equal to it for a uniform policy. It minimises `gradient_variance`.

    Args:
        logits_K: z, one logit per answer.
        rewards_K: r, the reward of each answer.

    Returns:
        The baseline, in reward units.

    Example:
        >>> best_baseline(torch.zeros(2), torch.tensor([1.0, 0.0])).item()
        0.5
    """
    weights_K = policy(logits_K) * _score_norm(logits_K)
    return (weights_K @ rewards_K) / weights_K.sum()


def _score_norm(logits_K: Tensor) -> Float[Tensor, " K"]:
    """‖e_y − π‖² = 1 − 2 π(y) + ‖π‖² for each answer y."""
    probs_K = policy(logits_K)
    return 1.0 - 2.0 * probs_K + probs_K.square().sum()
