"""What one of the five small tasks consists of, and how it becomes a `Task`."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from steelyard.tasks.booking.patterns import Draw
from steelyard.tasks.probes import Args, Probe
from steelyard.types import Case, Prompt, Suite, Task

VERSION = 1
"""Version of the suites; raise it when cases change."""
AUDIT = 100
"""Cases of the suite that measures."""
AUDIT_SEED = 7
_IMPORTS = "import collections\nimport itertools\nimport math\n\n\n"
"""What the right programs may use."""

Function = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Spot:
    """A small task with a suite that overlooks one kind of input."""

    name: str
    """Of the task and of its function."""
    blind_spot: str
    """The kind of input that the weak suite has none of."""
    prompt: str
    """The whole question."""
    references: tuple[Function, ...]
    """Right programs that share no code; each is a program of its own but for its name and the imports."""
    weak: tuple[Args, ...]
    """Inputs of the weak suite; none is of the blind kind."""
    missed: tuple[Args, ...]
    """Inputs of the blind kind; the complete suite has both."""
    draw: Callable[[Draw], Args]
    """Draws one input, also of the blind kind."""
    valid: Callable[[Args], bool]
    """Whether an input lies in the domain; never raises."""
    is_blind: Callable[[Args], bool]
    """Whether an input of the domain is of the blind kind."""

    @cached_property
    def probe(self) -> Probe:
        """For `steelyard suite`."""
        return Probe(inputs=self.inputs, valid=self.valid)

    def inputs(self, seed: int, count: int) -> list[Args]:
        """Return `count` drawn inputs; equal for equal arguments."""
        draw = Draw(seed)
        return [self.draw(draw) for _ in range(count)]

    def task(self) -> Task:
        """Return the task: one prompt and the suites weak, complete and audit."""
        audit = tuple(self.inputs(AUDIT_SEED, AUDIT))
        parts = {"weak": self.weak, "complete": (*self.weak, *self.missed), "audit": audit}
        prompt = Prompt(id=self.name, content=self.prompt)
        return Task(
            name=self.name,
            train_prompts=(prompt,),
            eval_prompts=(prompt,),
            suites={name: self._suite(name, inputs) for name, inputs in parts.items()},
            eval_suite="audit",
            references={function.__name__: self._source(function) for function in self.references},
        )

    def _suite(self, name: str, inputs: tuple[Args, ...]) -> Suite:
        """Expected values come from the first right program; at load every other one is run on them."""
        right = self.references[0]
        cases = tuple(
            Case(
                id=f"{'audit-' if name == 'audit' else ''}{i:02d}",
                family="blind" if self.is_blind(args) else "plain",
                args=args,
                expected=right(*args),
            )
            for i, args in enumerate(inputs)
        )
        return Suite(task=self.name, name=name, version=VERSION, entry_point=self.name, cases=cases)

    def _source(self, function: Function) -> str:
        return _IMPORTS + inspect.getsource(function).replace(f"def {function.__name__}(", f"def {self.name}(", 1)
