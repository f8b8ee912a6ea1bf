"""Recipe section of the rollout."""

from typing import Literal, Self

from pydantic import Field, model_validator

from steelyard.config import Section


class RolloutSection(Section):
    """How answers are sampled."""

    prompts_per_update: int = Field(default=1, ge=1)
    """P, groups per update."""
    group_size: int = Field(default=8, ge=1)
    """G, completions per prompt."""
    temperature: float = Field(default=1.0, gt=0.0)
    """Sampling temperature; every log-prob in ratio, KL and ledger is at this temperature."""
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    """Must be 1 in training: truncated sampling does not sample from the policy that is scored."""
    max_new_tokens: int = Field(default=256, ge=1)
    """Limit on sampled tokens per completion (L_max of fixed_length)."""
    dynamic_sampling: bool | None = None
    """Sample further groups until P of them have a mixed outcome; default: as the variant says (dapo: on)."""
    max_dead_groups: int = Field(default=64, ge=1)
    """With dynamic sampling: groups without a mixed outcome in one update before the run stops and says why."""
    curriculum: Literal["none", "edge"] = "none"
    """edge: draw prompts by p(1-p) of their estimated pass rate; none: every prompt once per epoch."""

    @model_validator(mode="after")
    def _no_truncation(self) -> Self:
        if self.top_p < 1.0:
            raise ValueError(
                f"rollout.top_p = {self.top_p} is refused in training: the sampler would draw from another "
                "distribution than the one that is scored (each ratio off by the kept mass). Use top_p = 1."
            )
        return self
