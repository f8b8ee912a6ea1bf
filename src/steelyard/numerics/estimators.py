"""Estimators over samples of one task."""

from math import comb


def pass_at_k(n: int, c: int, k: int) -> float:
    r"""Return the unbiased estimate of the chance that at least one of k answers is right.

    pass@k = 1 − C(n−c, k) / C(n, k)

    Chen 2021, arXiv:2107.03374 eq. 1. Exact integers, one rounding. Undefined for k > n: with two wrong
    samples nothing is known about five. Over tasks take the mean of the estimates, never pool counts.

    Unbiased over the draw of the n samples; 1 − (1 − c/n)^k is not.

    Args:
        n: Answers sampled, at least 1.
        c: Right answers among them, in [0, n].
        k: Answers one may hand in, in [1, n].

    Returns:
        The estimate, in [0, 1].

    Raises:
        ValueError: If c is not in [0, n] or k is not in [1, n].

    Example:
        >>> round(pass_at_k(10, 3, 5), 6)
        0.916667
    """
    if not 0 <= c <= n:
        raise ValueError(f"c must be in [0, n], got c={c} right answers of n={n}")
    if not 1 <= k <= n:
        raise ValueError(f"pass@k is undefined for k={k} with n={n} samples; draw at least k samples, or use k ≤ {n}")
    return (comb(n, k) - comb(n - c, k)) / comb(n, k)
