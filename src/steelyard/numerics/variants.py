"""Named objectives: a variant is a set of choices, one from each table, and a value that can be printed.

Plain data without torch, so that a recipe is read, checked and explained before torch is imported.
Each name of a choice is the name of the function that computes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType

from steelyard.numerics._checks import as_float, check_name, check_number

ADVANTAGE_NAMES = (
    "raw",
    "batch_centred",
    "group_centred",
    "group_standardised",
    "leave_one_out",
    "batch_standardised",
    "gae",
)
"""Functions of `steelyard.numerics.advantages`; `gae` is one of `steelyard.numerics.values`."""

GROUP_RELATIVE = frozenset({"group_centred", "group_standardised", "leave_one_out", "batch_standardised"})
"""Advantages whose baseline is the completion's own group; they need groups of at least two."""

STANDARDISED = frozenset({"group_standardised", "batch_standardised"})
"""Advantages that are divided by a standard deviation."""

SURROGATE_NAMES = ("policy_gradient", "importance", "clipped", "dual_clipped", "sequence_clipped", "cispo")
"""Functions of `steelyard.numerics.surrogates`."""

AGGREGATION_NAMES = ("sequence_mean", "token_mean", "fixed_length", "sequence_sum")
"""Functions of `steelyard.numerics.reductions`."""

KL_ESTIMATOR_NAMES = ("k1", "k2", "k3")
"""Functions of `steelyard.numerics.kl`."""

KL_PLACEMENT_NAMES = ("loss", "reward")
"""Where the KL penalty enters: as a term of the loss, or taken off the reward before the advantages."""

MISMATCH_NAMES = ("none", "truncate", "mask")
"""Functions of `steelyard.numerics.mismatch`; `none` has no weight."""

READS: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "advantage": {
            "group_standardised": ("ddof",),
            "batch_standardised": ("ddof",),
            "gae": ("ddof", "gamma", "lam"),
        },
        "surrogate": {
            "clipped": ("eps_low", "eps_high"),
            "dual_clipped": ("eps_low", "eps_high", "dual_clip"),
            "sequence_clipped": ("eps_low", "eps_high"),
            "cispo": ("eps_max",),
        },
        "mismatch_weight": {"truncate": ("mismatch_cap",), "mask": ("mismatch_cap",)},
    }
)
"""Which numbers each choice reads; choices that are not listed read none."""

_LACKS = {"ddof": "standard deviation", "gamma": "value network", "lam": "value network", "dual_clip": "dual clip"} | {
    "eps_low": "clip",
    "eps_high": "clip",
    "eps_max": "cap on the ratio",
    "mismatch_cap": "cap",
}

ENTERING: Mapping[str, float] = MappingProxyType(
    {"gamma": 1.0, "lam": 0.95, "dual_clip": 3.0, "eps_max": 5.0, "mismatch_cap": 2.0}
)
"""The value of a number whose part enters a formula and that the recipe does not write. ddof, ε_low and ε_high
have none: papers and trainers differ, so they are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What is maximised: J = Σ weight · w_mismatch · surrogate(advantage) − β · Σ weight · KL + c · Σ weight · entropy.

    Every choice is either read or None: None means that the formula has no such part.
    """

    variant: str
    """The name under which these choices are known; with other choices, the one they started from."""
    advantage: str
    """How rewards become advantages; one of `ADVANTAGE_NAMES`."""
    ddof: int | None = None
    """Divisor n − ddof of the standard deviation (of the group, the batch, or of whitening), 0 or 1; None without one."""
    gamma: float | None = None
    """Discount γ of GAE per token, in [0, 1]; None without a value network."""
    lam: float | None = None
    """λ of GAE, in [0, 1]; None without a value network."""
    surrogate: str
    """What is maximised per token; one of `SURROGATE_NAMES`."""
    eps_low: float | None = None
    """ε_low, in (0, 1); None without a clip."""
    eps_high: float | None = None
    """ε_high, above 0; None without a clip."""
    dual_clip: float | None = None
    """c, above 1: for A < 0 the term never falls below cA; None without a dual clip."""
    eps_max: float | None = None
    """ε_max, at least 1: absolute cap on the ratio in CISPO's weight; None elsewhere."""
    aggregation: str
    """The weight of each token; one of `AGGREGATION_NAMES`."""
    kl_coef: float = 0.0
    """β, at least 0; at 0 there is no KL term and no reference policy is kept."""
    kl_estimator: str | None = None
    """One of `KL_ESTIMATOR_NAMES`; None when β is 0."""
    kl_placement: str | None = None
    """One of `KL_PLACEMENT_NAMES`; None when β is 0."""
    entropy_coef: float = 0.0
    """c, coefficient of the entropy bonus, at least 0; 0 has no bonus."""
    mismatch_weight: str = "none"
    """Correction for a sampler μ that differs from π_old; one of `MISMATCH_NAMES`."""
    mismatch_cap: float | None = None
    """Largest π_old/μ, above 0: held there (truncate) or left out beyond (mask); None without a weight."""
    source: str
    """Who published the variant."""

    def __post_init__(self) -> None:
        check_name("advantage", self.advantage, ADVANTAGE_NAMES)
        check_name("surrogate", self.surrogate, SURROGATE_NAMES)
        check_name("aggregation", self.aggregation, AGGREGATION_NAMES)
        check_name("mismatch_weight", self.mismatch_weight, MISMATCH_NAMES)
        self._check_reads()
        self._check_kl()
        check_number("entropy_coef", self.entropy_coef)
        if self.surrogate == "sequence_clipped" and self.advantage == "gae":
            raise ValueError(
                "surrogate = 'sequence_clipped' has one ratio per completion and advantage = 'gae' one advantage per "
                "token: there is no clip to take between them. Use surrogate = 'clipped', or a group advantage."
            )

    @property
    def needs_group(self) -> bool:
        """Whether the baseline is the completion's own group, so that a group of one trains nothing."""
        return self.advantage in GROUP_RELATIVE

    @property
    def needs_critic(self) -> bool:
        """Whether a value network is trained beside the policy."""
        return self.advantage == "gae"

    def overridden(self, **choices: object) -> "Objective":
        """Return this objective with other choices; one that makes no sense is refused, with the way out.

        Parts that leave the formula take their numbers with them: another advantage drops ddof, another
        surrogate drops both ε, β = 0 drops estimator and placement. A part that enters needs its numbers
        written, except those of `ENTERING` and the placement of a KL term, `loss`.

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
            >>> VARIANTS["grpo"].overridden(surrogate="cispo").eps_max
            5.0
        """
        for name in choices:
            check_name("choice", name, CHOICES)
        choices = {name: as_float(value) if name != "ddof" else value for name, value in choices.items()}
        moved = self._moved(choices)
        if choices.get("kl_coef") == 0:
            # A written β = 0 wins over a written estimator: it switches off a term that the recipe describes.
            check_name("kl_estimator", choices.get("kl_estimator"), (None, *KL_ESTIMATOR_NAMES))
            check_name("kl_placement", choices.get("kl_placement"), (None, *KL_PLACEMENT_NAMES))
            choices |= {"kl_estimator": None, "kl_placement": None}
        elif "kl_coef" in choices and self.kl_coef == 0:
            moved |= {"kl_placement": "loss"}
        return replace(self, **(moved | choices))

    def _moved(self, choices: Mapping[str, object]) -> dict[str, object]:
        """Numbers that leave with a replaced part (None), and those that a new part brings along."""
        moved: dict[str, object] = {}
        for selector, reads in READS.items():
            if selector not in choices:
                continue
            before, now = reads.get(getattr(self, selector), ()), reads.get(str(choices[selector]), ())
            moved |= {name: None for name in before if name not in now}
            moved |= {name: ENTERING[name] for name in now if name not in before and name in ENTERING}
        return moved

    def _check_reads(self) -> None:
        for selector, reads in READS.items():
            choice = getattr(self, selector)
            read = reads.get(choice, ())
            for name in read:
                check_number(name, getattr(self, name), beside=f" with {selector} = {choice!r}")
            every = dict.fromkeys(name for names in reads.values() for name in names)
            unread = {name: getattr(self, name) for name in every if name not in read}
            written = {name: value for name, value in unread.items() if value is not None}
            if written:
                listed = ", ".join(f"{name} = {value!r}" for name, value in written.items())
                users = " or ".join(f"{key!r}" for key, names in reads.items() if set(written) <= set(names))
                raise ValueError(
                    f"{listed} would never be read: {selector} = {choice!r} has no {_LACKS[next(iter(written))]}. "
                    f"Remove {'it' if len(written) == 1 else 'them'}, or use {selector} = {users}."
                )

    def _check_kl(self) -> None:
        check_number("kl_coef", self.kl_coef)
        if self.kl_coef == 0:
            if (self.kl_estimator, self.kl_placement) != (None, None):
                raise ValueError(
                    f"kl_estimator = {self.kl_estimator!r}, kl_placement = {self.kl_placement!r} would never be read "
                    "while kl_coef is 0: set kl_coef above 0, or remove them."
                )
            return
        check_name("kl_estimator", self.kl_estimator, KL_ESTIMATOR_NAMES)
        check_name("kl_placement", self.kl_placement, KL_PLACEMENT_NAMES)


CHOICES = tuple(field.name for field in fields(Objective) if field.name not in ("variant", "source"))
"""What `Objective.overridden` may change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Practice:
    """What a variant brings along outside the formula: choices of sampling and of reward."""

    dynamic_sampling: bool = False
    """Keep sampling until the batch is full of groups with mixed outcome."""
    overlong_share: float = 0.0
    """Last share of the token limit over which the reward is taken down; 0 leaves it alone."""


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
        variant="ppo",
        advantage="gae",
        ddof=0,
        gamma=1.0,
        lam=0.95,
        surrogate="clipped",
        eps_low=0.2,
        eps_high=0.2,
        aggregation="token_mean",
        kl_coef=0.02,
        kl_estimator="k1",
        kl_placement="reward",
        source="Schulman 2017, arXiv:1707.06347; KL in the reward as Ouyang 2022, arXiv:2203.02155",
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
    Objective(
        variant="dapo",
        advantage="group_standardised",
        ddof=0,
        surrogate="clipped",
        eps_low=0.2,
        eps_high=0.28,
        aggregation="token_mean",
        source="Yu 2025, arXiv:2503.14476",
    ),
    Objective(
        variant="gspo",
        advantage="group_standardised",
        ddof=0,
        surrogate="sequence_clipped",
        eps_low=0.0003,
        eps_high=0.0004,
        aggregation="sequence_mean",
        source="Zheng 2025, arXiv:2507.18071",
    ),
    Objective(
        variant="cispo",
        advantage="group_standardised",
        ddof=0,
        surrogate="cispo",
        eps_max=5.0,
        aggregation="token_mean",
        source="MiniMax 2025, arXiv:2506.13585",
    ),
    Objective(
        variant="reinforce_pp",
        advantage="batch_standardised",
        ddof=0,
        surrogate="clipped",
        eps_low=0.2,
        eps_high=0.2,
        aggregation="token_mean",
        kl_coef=0.01,
        kl_estimator="k2",
        kl_placement="loss",
        source="Hu 2025, arXiv:2501.03262, with the group baseline",
    ),
)
"""By the name that recipes use as `objective.variant`."""

PRACTICES: Mapping[str, Practice] = MappingProxyType({"dapo": Practice(dynamic_sampling=True, overlong_share=0.2)})
"""By variant; a variant that is not listed brings nothing along. DAPO: a buffer of 4,096 in 20,480 tokens."""


def practice_of(variant: str) -> Practice:
    """Return what a variant brings along outside its formula."""
    return PRACTICES.get(variant, Practice())
