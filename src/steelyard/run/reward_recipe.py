"""The part of a recipe that says how answers are scored."""

from collections import Counter
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from steelyard.config import Section

Verifier = Literal["maths", "number", "closeness"]
"""Compares an answer with the right one that stands in the row."""
Term = Literal["maths", "number", "closeness", "boxed", "length"]
"""A further part: one of the verifiers, or a term for form or length."""


class RewardPart(Section):
    """One further term of the reward."""

    name: str = Field(min_length=1, pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")
    """What it is called in the ledger (reward:part:NAME) and on the card."""
    function: str | None = None
    """file.py:name or package.module:name, as reward.function."""
    verifier: Term | None = None
    """maths, number or closeness; boxed: 1 where the answer stands in a box; length: minus thousands of sampled tokens."""
    weight: float = Field(default=1.0, allow_inf_nan=False)
    """Its factor in the sum; not 0."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.function is None) == (self.verifier is None):
            raise ValueError("give exactly one of function and verifier to each of reward.parts")
        if self.weight == 0.0:
            raise ValueError("a part of weight 0 changes no reward; remove it, or give it a weight")
        if self.name == "total":
            raise ValueError("name it something else: total is the name of the sum")
        return self


class RewardSection(Section):
    """How answers are scored when no test suite does it."""

    function: str | None = None
    """file.py:name or package.module:name, in TRL's form f(prompts, completions, **columns). It runs in a process of its own."""
    verifier: Verifier | None = None
    """Compare with the answer in the row, without a function of yours. maths: formulas, by math-verify (extra `maths`);
    number: exact numbers; closeness: numbers, paid by how close they come."""
    answer_column: str = Field(default="answer", min_length=1)
    """The column of the right answers, for verifiers."""
    width: float = Field(default=0.1, gt=0.0, allow_inf_nan=False)
    """closeness: the reward falls in a straight line from 1 at the right number to 0 at this distance, as a share of it (of 1
    for smaller numbers)."""
    seconds: float = Field(default=60.0, gt=0.0, allow_inf_nan=False)
    """Longest that one call of a reward function may take; then its process is killed and replaced."""
    weight: float = Field(default=1.0, gt=0.0, allow_inf_nan=False)
    """Factor of the primary reward where there are parts."""
    parts: tuple[RewardPart, ...] = ()
    """Further terms, written as [[reward.parts]]: reward = weight * primary + sum of weight * part. Signal filters and
    measuring look at the primary reward alone."""
    max_unscored: float = Field(default=0.1, ge=0.0, le=1.0)
    """Largest share of answers that may be impossible to judge: above it, and with at least 8 such answers, the run stops;
    counted over each update and over the run. 1: never."""
    model: str | tuple[str, ...] | None = None
    """A directory that `steelyard reward-model` made, or a list of them: one ensemble. Suites of the task judge beside it, unpaid."""
    disagreement_penalty: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    """Reward = mean − this × deviation over the members of reward.model."""
    overlong_buffer: int | None = Field(default=None, ge=0)
    """Last tokens before the limit over which the reward falls by up to overlong_penalty; 0: off; default: as the
    variant says (dapo: a fifth of rollout.max_new_tokens)."""
    overlong_penalty: float = Field(default=1.0, gt=0.0, allow_inf_nan=False)
    """What a completion at the limit loses, in reward units."""

    @field_validator("model", mode="before")
    @classmethod
    def _directories(cls, model: object) -> object:
        names = list(model) if isinstance(model, list | tuple) else [model]
        if model is not None and (not names or not all(isinstance(name, str) and name for name in names)):
            raise ValueError("name a directory, or a list of them")
        return tuple(names) if isinstance(model, list) else model

    @field_validator("parts", mode="before")
    @classmethod
    def _tables(cls, parts: object) -> object:
        return tuple(parts) if isinstance(parts, list) else parts

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        twice = [name for name, count in Counter(part.name for part in self.parts).items() if count > 1]
        if twice:
            raise ValueError(f"two of reward.parts are called {twice[0]!r}; give each its own name")
        return self

    @property
    def models(self) -> tuple[str, ...]:
        """Every directory of `model`; empty without one."""
        return (self.model,) if isinstance(self.model, str) else self.model or ()
