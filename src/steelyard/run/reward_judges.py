"""The judges that a recipe's [reward] names, with the processes that they need."""

from collections.abc import Sequence
from contextlib import ExitStack

from steelyard.evals.answer_judges import AnswerJudge, ComposedJudge, LengthJudge, Part, ProcessJudge
from steelyard.evals.judges import Judge
from steelyard.run.recipe import Recipe
from steelyard.run.recipe_checks import REASONING
from steelyard.types import Prompt, Task
from steelyard.verify.answer_verifiers import AnswerVerifier, BoxVerifier, NumberVerifier
from steelyard.verify.maths import MathsVerifier
from steelyard.verify.reasoning import COLUMN, ReasoningVerifier
from steelyard.verify.reward_process import RewardProcess


def answer_judge(recipe: Recipe, task: Task, stack: ExitStack) -> Judge | None:
    """Return the primary judge that needs neither a suite nor a model; None where the recipe names none.

    Raises:
        ConfigError: If a function cannot be loaded or a package is missing.
        TaskError: If a right answer cannot be compared with.
    """
    reward = recipe.reward
    if reward.function is not None or reward.verifier is not None:
        return _judge(recipe, task, reward.function, reward.verifier, stack)
    if reward.model is None and (recipe.task.data or "").startswith(REASONING):
        return _by_answer(ReasoningVerifier(workers=recipe.run.threads), "reasoning-gym", COLUMN, task, stack)
    return None


def with_parts(recipe: Recipe, task: Task, primary: Judge, stack: ExitStack) -> Judge:
    """Return the primary judge with the recipe's further parts added, where there are any."""
    parts = [
        Part(name=part.name, weight=part.weight, judge=_judge(recipe, task, part.function, part.verifier, stack))
        for part in recipe.reward.parts
    ]
    return ComposedJudge(primary, weight=recipe.reward.weight, parts=parts) if parts else primary


def _judge(recipe: Recipe, task: Task, function: str | None, verifier: str | None, stack: ExitStack) -> Judge:
    if function is not None:
        process = RewardProcess(function, seconds=recipe.reward.seconds)
        stack.callback(process.close)
        return ProcessJudge(process)
    column = recipe.reward.answer_column
    match verifier:
        case "length":
            return LengthJudge()
        case "boxed":
            return AnswerJudge(BoxVerifier(), name="boxed", column=None)
        case "maths":
            return _by_answer(MathsVerifier(workers=recipe.run.threads), "maths", column, task, stack)
        case "closeness":
            return _by_answer(NumberVerifier(width=recipe.reward.width), "closeness", column, task, stack)
        case _:
            return _by_answer(NumberVerifier(), "number", column, task, stack)


def _by_answer(verifier: AnswerVerifier, name: str, column: str, task: Task, stack: ExitStack) -> AnswerJudge:
    stack.callback(verifier.close)
    judge = AnswerJudge(verifier, name=name, column=column)
    judge.check_prompts(_all_prompts(task))
    return judge


def _all_prompts(task: Task) -> Sequence[Prompt]:
    return [*task.train_prompts, *task.eval_prompts]
