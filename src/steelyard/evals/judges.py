"""Judges: one interface over test suites and reward functions, for training and for measuring."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from steelyard.types import Completion, Plain, Prompt, Status, Suite, Task, Verdict
from steelyard.verify.extract import normalised_source
from steelyard.verify.judge import matches
from steelyard.verify.programs import OwnSuiteVerifier, ProgramCheck, ProgramVerifier
from steelyard.verify.recheck import Recheck, Rechecker
from steelyard.verify.reward_functions import RewardFunction, score
from steelyard.verify.sandbox import Sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Everything that was found out about one completion."""

    verdict: Verdict
    """Of the primary judge: its reward trains, or its pass counts."""
    others: Mapping[str, Verdict] = field(default_factory=dict[str, Verdict])
    """Verdicts of further judges on the same run of the program, by judge name."""
    program: str | None = None
    """Normalised source of the extracted program; equal programs have equal text."""
    signatures: tuple[str, ...] = ()
    """Known faults whose outputs this program reproduces on every input."""
    notes: tuple[str, ...] = ()
    """What a person should know of it."""
    total: float | None = None
    """Where the reward has parts: the sum that trains. The verdict's own reward is then the primary part alone."""


class Judge(Protocol):
    """Turns completions into judgements, one each, in order."""

    name: str
    """Name of the primary judge, as it stands in the ledger."""
    resolution: float
    """eps of the dtype in which the rewards are computed; it decides what counts as a constant group."""

    def check(self, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Judgement]:
        """Judge each completion of the prompt beside it."""
        ...


class SuiteJudge:
    """Programs, judged by a suite in the sandbox; reward = passed / expected."""

    resolution = float(np.finfo(np.float64).eps)

    def __init__(
        self,
        sandbox: Sandbox,
        suite: Suite,
        *,
        others: Sequence[Suite] = (),
        signatures: Mapping[str, Mapping[str, Plain]] | None = None,
        recheck: float = 0.0,
    ) -> None:
        """Judge by `suite`; `others` and fault `signatures` are read off the same run of each program.

        `recheck` is the share of the distinct programs that run again, a process per input, in another order.
        """
        self.name = suite_name(suite)
        self.verifier = ProgramVerifier(sandbox, suite, extra_suites=tuple(others))
        self.rechecker = Rechecker(sandbox, self.verifier.plan, share=recheck)
        self.signatures = dict(signatures or {})

    def check(self, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Judgement]:
        """Extract and run every program once, then judge its outputs."""
        answers = [(str(index), completion.text) for index, completion in enumerate(completions)]
        checks = self.verifier.check(answers)
        again = self.rechecker.look(checks)
        return [self._judgement(check, None if check.source is None else again.get(check.source)) for check in checks]

    def _judgement(self, check: ProgramCheck, again: Recheck | None) -> Judgement:
        others = {f"{self.name.split(':')[0]}:{name}": verdict for name, verdict in check.extra.items()}
        if again is not None:
            others[f"{self.name}/recheck"] = again.verdict
        return Judgement(
            verdict=check.verdict,
            others=others,
            program=None if check.source is None else normalised_source(check.source),
            signatures=tuple(name for name, outputs in self.signatures.items() if matches(outputs, check.outcomes)),
            notes=(f"a program {again.verdict.detail}.",) if again is not None and again.keeps_state else (),
        )


class OwnSuiteJudge:
    """Programs for prompts that have a suite each, judged in the sandbox; reward = passed / expected."""

    resolution = float(np.finfo(np.float64).eps)

    def __init__(self, sandbox: Sandbox, suites: Mapping[str, Suite]) -> None:
        """Judge by `suites`, by prompt id; at least one. All have the same name."""
        self.name = suite_name(next(iter(suites.values())))
        self.verifier = OwnSuiteVerifier(sandbox, suites)

    def check(self, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Judgement]:
        """Extract and run every program once, then judge its outcomes by its prompt's suite."""
        answers = [
            (str(index), prompt.id, completion.text)
            for index, (prompt, completion) in enumerate(zip(prompts, completions, strict=True))
        ]
        return [
            Judgement(verdict=check.verdict, program=None if check.source is None else normalised_source(check.source))
            for check in self.verifier.check(answers)
        ]


class FunctionJudge:
    """Answers scored by a reward function in TRL's form."""

    resolution = float(np.finfo(np.float64).eps)

    def __init__(self, function: RewardFunction, *, spec: str) -> None:
        """Judge by `function`; `spec` is how the recipe names it."""
        self.name = f"reward:{spec}"
        self.function = function

    def check(self, prompts: Sequence[Prompt], completions: Sequence[Completion]) -> list[Judgement]:
        """Call the function once on all of them; None is unscored."""
        rewards = score(
            self.function,
            [prompt.content for prompt in prompts],
            [in_the_prompts_form(prompt, completion) for prompt, completion in zip(prompts, completions, strict=True)],
            columns_of(prompts),
        )
        return [Judgement(verdict=_verdict(reward)) for reward in rewards]


def suite_name(suite: Suite) -> str:
    """Name of a suite on the command line and in the ledger: task:suite."""
    return f"{suite.task}:{suite.name}"


def measuring_suites(task: Task) -> tuple[Suite, list[Suite]]:
    """Return the suite that measures, and the others of the task."""
    if task.eval_suite is None:
        raise ValueError(f"task {task.name} has no suite that measures")
    main = task.suites[task.eval_suite]
    return main, [suite for suite in task.suites.values() if suite.name != main.name]


def _verdict(reward: float | None) -> Verdict:
    if reward is None:
        return Verdict(status=Status.CHECKER_FAILED, reward=None, detail="the reward function gave no score")
    return Verdict(status=Status.PASSED if reward > 0 else Status.FAILED, reward=reward)


def in_the_prompts_form(prompt: Prompt, completion: Completion) -> object:
    """A chat prompt's completion is a list of messages, as in TRL; a text prompt's is text."""
    if isinstance(prompt.content, str):
        return completion.text
    return [{"role": "assistant", "content": completion.text}]


def columns_of(prompts: Sequence[Prompt]) -> dict[str, list[object]]:
    """The data's other columns, one entry per prompt; None where a prompt has none."""
    names = sorted({name for prompt in prompts for name in prompt.columns})
    return {name: [prompt.columns.get(name) for prompt in prompts] for name in names}
