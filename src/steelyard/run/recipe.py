"""The recipe of a reinforcement-learning run: every section, its defaults, and what they mean.

A variant fills the defaults of `objective`; keys written in the recipe override it and are marked on
the card. Reading a recipe imports neither torch nor transformers.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from steelyard.config import Section, explicit_keys
from steelyard.numerics.variants import VARIANTS, Objective
from steelyard.rollout.config import RolloutSection
from steelyard.update.config import ModelSection, OptimizerSection, UpdateSection


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
    """A built-in task: booking, arithmetic."""
    suite: str | None = None
    """The training suite of a task judged by tests; default: the first of the task."""
    data: str | None = None
    """Your own rows: a JSONL or Parquet file, or a hub data set."""
    eval_data: str | None = None
    """Held-out rows; without it `held_out` of `data` is kept back."""
    held_out: float = Field(default=0.2, ge=0.0, lt=1.0)
    """Share of `data` kept back for measuring, chosen by a hash of the prompt id."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.name is None) == (self.data is None):
            raise ValueError("give exactly one of task.name (a built-in task) and task.data (your own rows)")
        return self


class RewardSection(Section):
    """How answers are scored when no test suite does it."""

    function: str | None = None
    """file.py:name or package.module:name, in TRL's form f(prompts, completions, **columns)."""


class KLSection(Section):
    """The leash to the reference policy (the start of this run, frozen)."""

    coef: float | None = Field(default=None, ge=0.0)
    """β; 0 switches it off and no reference is kept."""
    estimator: Literal["k1", "k2", "k3"] | None = None
    """Which estimator of KL(policy || reference)."""
    placement: Literal["loss", "reward"] | None = None
    """Where the penalty enters; `loss` is implemented."""


class ObjectiveSection(Section):
    """What is optimised: a named variant, and the choices that differ from it."""

    variant: str = "grpo"
    """reinforce, reinforce_baseline, rloo, grpo, dr_grpo or dapo."""
    advantage: str | None = None
    """raw, batch_centred, group_centred, group_standardised or leave_one_out."""
    ddof: Literal[0, 1] | None = None
    """Divisor N - ddof of the group's standard deviation."""
    surrogate: str | None = None
    """policy_gradient, importance or clipped."""
    eps_low: float | None = Field(default=None, gt=0.0, lt=1.0)
    """Lower clip: ratios below 1 - eps_low are flat for bad completions."""
    eps_high: float | None = Field(default=None, gt=0.0)
    """Upper clip: ratios above 1 + eps_high are flat for good completions."""
    aggregation: str | None = None
    """sequence_mean, token_mean, fixed_length or sequence_sum."""
    kl: KLSection = KLSection()
    """The KL penalty."""

    def resolve(self) -> tuple[Objective, frozenset[str]]:
        """Return the objective, and which of its choices were written over the variant's."""
        if self.variant not in VARIANTS:
            raise ValueError(f"objective.variant = {self.variant!r} is unknown; choose one of {', '.join(VARIANTS)}")
        names = {key: key.replace("kl.", "kl_") for key in explicit_keys(self) if key != "variant"}
        choices = {name: self._value(key) for key, name in names.items()}
        base = VARIANTS[self.variant]
        changed = {name: value for name, value in choices.items() if value != getattr(base, name)}
        return base.overridden(**choices), frozenset(changed)

    def _value(self, key: str) -> object:
        return getattr(self.kl, key[3:]) if key.startswith("kl.") else getattr(self, key)


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
    eval: EvalSection = EvalSection()

    @model_validator(mode="after")
    def _has_meaning(self) -> Self:
        objective, _ = self.objective.resolve()
        size = self.rollout.group_size
        if size < 2 and objective.needs_group:
            raise ValueError(
                f"rollout.group_size = {size} with objective.advantage = {objective.advantage}: a group of one has no "
                "baseline, its advantage is 0 and nothing is trained. Use group_size >= 2, or advantage = 'raw'."
            )
        if self.task.data is not None and self.reward.function is None:
            raise ValueError("task.data needs reward.function = 'file.py:name' to score the answers")
        if self.task.name is not None and self.task.suite is not None and self.reward.function is not None:
            raise ValueError("give task.suite or reward.function, not both: one primary reward scores an answer")
        return self
