"""The recipe of a reinforcement-learning run: every section, its defaults, and what they mean.

A variant fills the defaults of `objective`; keys written in the recipe override it and are marked on
the card. Reading a recipe imports neither torch nor transformers.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from steelyard.config import Section, explicit_keys
from steelyard.numerics.variants import VARIANTS, Objective, practice_of
from steelyard.rollout.config import RolloutSection
from steelyard.run.recipe_checks import check_recipe
from steelyard.run.reward_recipe import RewardSection
from steelyard.update.config import CriticSection, ModelSection, OptimizerSection, UpdateSection


class RunSection(Section):
    """Which run this is."""

    updates: int = Field(default=40, ge=1)
    """Number of updates; update N goes from state N-1 to state N."""
    seed: int = Field(default=0, ge=0)
    """The training seed; it keys every random draw."""
    dir: str | None = None
    """The run directory; default runs/<recipe>-s<seed>."""
    threads: int = Field(default=2, ge=1)
    """CPU threads of torch. Sums depend on it in the last bit, so it belongs to the recipe."""


class TaskSection(Section):
    """Where the prompts come from, and the suite that rewards."""

    name: str | None = None
    """A built-in task: booking, arithmetic, humaneval."""
    suite: str | None = None
    """The training suite of a task judged by tests: its name, or a .json file that `steelyard suite repair` wrote; default:
    the first of the task."""
    data: str | None = None
    """Your own rows: a JSONL or Parquet file, or a hub data set; or `reasoning-gym:NAME?size=500&seed=1` (extra `reasoning`)."""
    eval_data: str | None = None
    """Held-out rows; without it `held_out` of `data` is kept back."""
    held_out: float = Field(default=0.2, ge=0.0, lt=1.0)
    """Share of `data` kept back for measuring, chosen by a hash of the prompt id."""
    recheck: float = Field(default=0.02, ge=0.0, le=1.0)
    """Share of the distinct programs that run again, a process per input in another order; one that keeps state is reported."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.name is None) == (self.data is None):
            raise ValueError("give exactly one of task.name (a built-in task) and task.data (your own rows)")
        return self


class KLSection(Section):
    """The leash to the reference policy (the start of this run, frozen)."""

    coef: float | None = Field(default=None, ge=0.0)
    """β; 0 switches it off and no reference is kept."""
    estimator: Literal["k1", "k2", "k3"] | None = None
    """Which estimator of KL(policy || reference)."""
    placement: Literal["loss", "reward"] | None = None
    """Where the penalty enters: a term of the loss, or taken off each token's reward."""


class MismatchSection(Section):
    """Correction for a sampler whose log-probs differ from the trainer's own."""

    weight: Literal["none", "truncate", "mask"] | None = None
    """truncate: min(cap, pi_old/mu) multiplies each token's term; mask: tokens beyond the cap are left out."""
    cap: float | None = Field(default=None, gt=0.0)
    """Largest ratio pi_old/mu."""


class ObjectiveSection(Section):
    """What is optimised: a named variant, and the choices that differ from it."""

    variant: str = "grpo"
    """reinforce, reinforce_baseline, rloo, ppo, grpo, dr_grpo, dapo, gspo, cispo or reinforce_pp."""
    advantage: str | None = None
    """raw, batch_centred, group_centred, group_standardised, leave_one_out, batch_standardised or gae."""
    ddof: Literal[0, 1] | None = None
    """Divisor N - ddof of the standard deviation of group, batch or whitening."""
    gamma: float | None = Field(default=None, ge=0.0, le=1.0)
    """Discount per token of gae."""
    lam: float | None = Field(default=None, ge=0.0, le=1.0)
    """Lambda of gae."""
    surrogate: str | None = None
    """policy_gradient, importance, clipped, dual_clipped, sequence_clipped or cispo."""
    eps_low: float | None = Field(default=None, gt=0.0, lt=1.0)
    """Lower clip: ratios below 1 - eps_low are flat for bad completions."""
    eps_high: float | None = Field(default=None, gt=0.0)
    """Upper clip: ratios above 1 + eps_high are flat for good completions."""
    dual_clip: float | None = Field(default=None, gt=1.0)
    """dual_clipped: ratios above this are flat for bad completions too."""
    eps_max: float | None = Field(default=None, gt=0.0)
    """cispo: absolute cap on the ratio that weighs a token."""
    aggregation: str | None = None
    """sequence_mean, token_mean, fixed_length or sequence_sum."""
    entropy_coef: float | None = Field(default=None, ge=0.0)
    """Coefficient of the entropy bonus; 0 has none."""
    mismatch: MismatchSection = MismatchSection()
    """The mismatch weight."""
    kl: KLSection = KLSection()
    """The KL penalty."""

    def resolve(self) -> tuple[Objective, frozenset[str]]:
        """Return the objective, and which of its choices were written over the variant's."""
        if self.variant not in VARIANTS:
            raise ValueError(f"objective.variant = {self.variant!r} is unknown; choose one of {', '.join(VARIANTS)}")
        written = {key: key.replace(".", "_") for key in explicit_keys(self) if key != "variant"}
        choices = {name: self._value(key) for key, name in written.items()}
        base = VARIANTS[self.variant]
        changed = {name: value for name, value in choices.items() if value != getattr(base, name)}
        return base.overridden(**choices), frozenset(changed)

    def _value(self, key: str) -> object:
        section, _, name = key.rpartition(".")
        return getattr(getattr(self, section) if section else self, name)


class EvalSection(Section):
    """Measuring the policy on held-out prompts while it trains. It selects nothing."""

    samples: int = Field(default=64, ge=0)
    """Answers per held-out prompt; 0 switches measuring off."""
    every: int = Field(default=10, ge=1)
    """Measured at the start, every so many updates, and at the end."""


class Recipe(Section):
    """A whole run."""

    run: RunSection = RunSection()
    model: ModelSection
    task: TaskSection
    reward: RewardSection = RewardSection()
    rollout: RolloutSection = RolloutSection()
    objective: ObjectiveSection = ObjectiveSection()
    optimizer: OptimizerSection = OptimizerSection()
    update: UpdateSection = UpdateSection()
    critic: CriticSection = CriticSection()
    eval: EvalSection = EvalSection()

    @property
    def dynamic_sampling(self) -> bool:
        """Whether dead groups are replaced: as written, else as the variant says."""
        written = self.rollout.dynamic_sampling
        return practice_of(self.objective.variant).dynamic_sampling if written is None else written

    @property
    def overlong_buffer(self) -> int:
        """Tokens before the limit over which the reward falls: as written, else as the variant says."""
        written = self.reward.overlong_buffer
        share = practice_of(self.objective.variant).overlong_share
        return int(share * self.rollout.max_new_tokens) if written is None else written

    @model_validator(mode="after")
    def _has_meaning(self) -> Self:
        check_recipe(self)
        return self
