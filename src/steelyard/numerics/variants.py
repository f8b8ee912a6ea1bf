"""Named objectives: a variant is a set of choices, one from each table, and a value that can be printed.

Plain data without torch, so that a recipe is read, checked and explained before torch is imported.
Each name of a choice is the name of the function that computes it.
"""

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import TypeGuard

ADVANTAGE_NAMES = ("raw", "batch_centred", "group_centred", "group_standardised", "leave_one_out")
"""Functions of `steelyard.numerics.advantages`."""

GROUP_RELATIVE = frozenset({"group_centred", "group_standardised", "leave_one_out"})
"""Advantages whose baseline is the completion's own group; they need groups of at least two."""

SURROGATE_NAMES = ("policy_gradient", "importance", "clipped")
"""Functions of `steelyard.numerics.surrogates`."""

AGGREGATION_NAMES = ("sequence_mean", "token_mean", "fixed_length", "sequence_sum")
"""Functions of `steelyard.numerics.reductions`."""

KL_ESTIMATOR_NAMES = ("k1", "k2", "k3")
"""Functions of `steelyard.numerics.kl`."""

KL_PLACEMENT_NAMES = ("loss", "reward")
"""Where the KL penalty enters; `loss` is implemented."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What is maximised: J = Σ weight · surrogate(advantage) − β · Σ weight · KL estimate.

    Every choice is either read or None: None means that the formula has no such part.
    """

    variant: str
    """The name under which these choices are known; with other choices, the one they started from."""
    advantage: str
    """How rewards become advantages; one of `ADVANTAGE_NAMES`."""
    ddof: int | None = None
    """Divisor n − ddof of the group's standard deviation, 0 or 1; None without a deviation."""
    surrogate: str
    """What is maximised per token; one of `SURROGATE_NAMES`."""
    eps_low: float | None = None
    """ε_low, in (0, 1); None without a clip."""
    eps_high: float | None = None
    """ε_high, above 0; None without a clip."""
    aggregation: str
    """The weight of each token; one of `AGGREGATION_NAMES`."""
    kl_coef: float = 0.0
    """β, at least 0; at 0 there is no KL term and no reference policy is kept."""
    kl_estimator: str | None = None
    """One of `KL_ESTIMATOR_NAMES`; None when β is 0."""
    kl_placement: str | None = None
    """One of `KL_PLACEMENT_NAMES`; None when β is 0."""
    source: str
    """Who published the variant."""

    def __post_init__(self) -> None:
        _check_name("advantage", self.advantage, ADVANTAGE_NAMES)
        _check_name("surrogate", self.surrogate, SURROGATE_NAMES)
        _check_name("aggregation", self.aggregation, AGGREGATION_NAMES)
        self._check_ddof()
        self._check_clip()
        self._check_kl()

    @property
    def needs_group(self) -> bool:
        """Whether the baseline is the completion's own group, so that a group of one trains nothing."""
        return self.advantage in GROUP_RELATIVE

    def overridden(self, **choices: object) -> "Objective":
        """Return this objective with other choices; one that makes no sense is refused, with the way out.

        Parts that leave the formula take their numbers with them: another advantage drops ddof, another
        surrogate drops both ε, β = 0 drops estimator and placement. A part that enters needs its numbers
        written; only the placement of a KL term has a default, `loss`.

        Args:
            **choices: Any field but `variant` and `source`.

        Returns:
            A new objective under the same variant name.

        Raises:
            ValueError: If a name or value is unknown, a needed number is missing, or a choice would
                never be read.

        Example:
            >>> VARIANTS["grpo"].overridden(kl_coef=0.0, aggregation="token_mean").kl_estimator is None
            True
        """
        for name in choices:
            _check_name("choice", name, CHOICES)
        choices = {name: _as_float(value) if name != "ddof" else value for name, value in choices.items()}
        dropped: dict[str, object] = {}
        if choices.get("advantage", "group_standardised") != "group_standardised":
            dropped |= {"ddof": None}
        if choices.get("surrogate", "clipped") != "clipped":
            dropped |= {"eps_low": None, "eps_high": None}
        if choices.get("kl_coef") == 0:
            # A written β = 0 wins over a written estimator: it switches off a term that the recipe describes.
            _check_name("kl_estimator", choices.get("kl_estimator"), (None, *KL_ESTIMATOR_NAMES))
            _check_name("kl_placement", choices.get("kl_placement"), (None, *KL_PLACEMENT_NAMES))
            choices |= {"kl_estimator": None, "kl_placement": None}
        elif "kl_coef" in choices and self.kl_coef == 0:
            dropped |= {"kl_placement": "loss"}
        return replace(self, **(dropped | choices))

    def _check_ddof(self) -> None:
        if self.advantage == "group_standardised":
            if isinstance(self.ddof, bool) or self.ddof not in (0, 1):
                raise ValueError(
                    f"ddof must be 0 (population, GRPO's paper) or 1 (sample; TRL, verl) with advantage = "
                    f"'group_standardised', got {self.ddof!r}"
                )
        elif self.ddof is not None:
            raise ValueError(
                f"ddof = {self.ddof!r} would never be read: advantage = {self.advantage!r} has no standard deviation. "
                "Remove ddof, or use advantage = 'group_standardised'."
            )

    def _check_clip(self) -> None:
        written = [self.eps_low, self.eps_high]
        if self.surrogate == "clipped":
            if not (_is_number(self.eps_low) and 0 < self.eps_low < 1):
                raise ValueError(
                    f"eps_low must be a number in (0, 1) with surrogate = 'clipped', such as 0.2; got {self.eps_low!r}"
                )
            if not (_is_number(self.eps_high) and self.eps_high > 0):
                raise ValueError(
                    f"eps_high must be a number above 0 with surrogate = 'clipped', such as 0.2; got {self.eps_high!r}"
                )
        elif written != [None, None]:
            raise ValueError(
                f"eps_low = {self.eps_low!r}, eps_high = {self.eps_high!r} would never be read: surrogate = "
                f"{self.surrogate!r} has no clip. Remove them, or use surrogate = 'clipped'."
            )

    def _check_kl(self) -> None:
        if not (_is_number(self.kl_coef) and self.kl_coef >= 0):
            raise ValueError(f"kl_coef must be a finite number, at least 0, got {self.kl_coef!r}")
        if self.kl_coef == 0:
            if (self.kl_estimator, self.kl_placement) != (None, None):
                raise ValueError(
                    f"kl_estimator = {self.kl_estimator!r}, kl_placement = {self.kl_placement!r} would never be read "
                    "while kl_coef is 0: set kl_coef above 0, or remove them."
                )
            return
        _check_name("kl_estimator", self.kl_estimator, KL_ESTIMATOR_NAMES)
        _check_name("kl_placement", self.kl_placement, KL_PLACEMENT_NAMES)
        if self.kl_placement == "reward":
            raise ValueError(
                "kl_placement = 'reward' is not implemented yet; use kl_placement = 'loss' or kl_coef = 0."
            )


CHOICES = tuple(field.name for field in fields(Objective) if field.name not in ("variant", "source"))
"""What `Objective.overridden` may change."""


def _check_name(what: str, name: object, allowed: tuple[str | None, ...]) -> None:
    if name not in allowed:
        known = [each for each in allowed if each is not None]
        near = difflib.get_close_matches(str(name), known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"unknown {what} {name!r}; {hint}choose one of {', '.join(known)}")


def _as_float(value: object) -> object:
    """Return a written 0 as 0.0, so that equal objectives are printed alike."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _table(*objectives: Objective) -> Mapping[str, Objective]:
    return MappingProxyType({objective.variant: objective for objective in objectives})


VARIANTS: Mapping[str, Objective] = _table(
    Objective(
        variant="reinforce",
        advantage="raw",
        surrogate="policy_gradient",
        aggregation="sequence_sum",
        source="Williams 1992, doi:10.1007/BF00992696",
    ),
    Objective(
        variant="reinforce_baseline",
        advantage="batch_centred",
        surrogate="policy_gradient",
        aggregation="sequence_sum",
        source="Williams 1992, doi:10.1007/BF00992696, with the batch mean as baseline",
    ),
    Objective(
        variant="rloo",
        advantage="leave_one_out",
        surrogate="policy_gradient",
        aggregation="sequence_sum",
        source="Ahmadian 2024, arXiv:2402.14740",
    ),
    Objective(
        variant="grpo",
        advantage="group_standardised",
        ddof=0,
        surrogate="clipped",
        eps_low=0.2,
        eps_high=0.2,
        aggregation="sequence_mean",
        kl_coef=0.04,
        kl_estimator="k3",
        kl_placement="loss",
        source="Shao 2024, arXiv:2402.03300",
    ),
    Objective(
        variant="dr_grpo",
        advantage="group_centred",
        surrogate="clipped",
        eps_low=0.2,
        eps_high=0.2,
        aggregation="fixed_length",
        source="Liu 2025, arXiv:2503.20783",
    ),
    # DAPO's dynamic sampling and soft overlong penalty are choices of sampling and reward, not of the objective.
    Objective(
        variant="dapo",
        advantage="group_standardised",
        ddof=0,
        surrogate="clipped",
        eps_low=0.2,
        eps_high=0.28,
        aggregation="token_mean",
        source="Yu 2025, arXiv:2503.14476, without dynamic sampling and overlong penalty",
    ),
)
"""By the name that recipes use as `objective.variant`."""
