"""Preference pairs from a file, or from the groups of a run; and which of them are held out."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from steelyard.content import content_hash
from steelyard.errors import TaskError
from steelyard.ledger.reader import LedgerReader
from steelyard.ledger.records import StoredCompletion
from steelyard.rollout.prompts import render, stop_ids
from steelyard.run.directory import ledger_of
from steelyard.run.pairs_recipe import PairsSection
from steelyard.tasks.files import read_prompts, split
from steelyard.tasks.sources import short
from steelyard.types import Prompt
from steelyard.update.hashing import tokenizer_hash
from steelyard.update.models import Policy
from steelyard.update.pairs import PreferencePair

PROMPTS_TO_SPLIT = 5
"""Different prompts from which on whole prompts are held out; below it, single pairs."""
TRUNCATED = "answers cut at the token limit"
FEW = "groups with fewer than two whole, scored answers"
EQUAL = "groups whose whole answers all have one reward"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSet:
    """All pairs of a recipe."""

    train: tuple[PreferencePair, ...]
    """To learn from, at least one."""
    held_out: tuple[PreferencePair, ...]
    """To measure on; none in common with `train`."""
    unit: Literal["prompt", "pair"]
    """What was held out as a whole. With unit pair, an answer can stand on both sides, in different pairs."""
    left_out: Mapping[str, int]
    """What made no pair, counted by reason."""

    @property
    def hash(self) -> str:
        """SHA-256 over the tokens of every pair and the side it is on."""
        return content_hash([[_tokens(pair) for pair in side] for side in (self.train, self.held_out)])


def load_pairs(section: PairsSection, policy: Policy, *, chat: Literal["auto", "never"]) -> PairSet:
    """Return the pairs that a recipe names, in the tokens of `policy`.

    Raises:
        TaskError: If there is no pair, a pair cannot be used, or the run was sampled with another tokenizer.
        LedgerError: If the ledger cannot be read.
        RunDirectoryError: If the directory is no run.
    """
    left_out: Counter[str] = Counter()
    if section.data is not None:
        pairs = _from_file(section.data, policy, chat=chat)
    else:
        pairs = _from_ledger(Path(str(section.ledger)).expanduser(), policy, left_out)
    for number, pair in enumerate(pairs, start=1):
        if policy.context is not None and pair.length > policy.context:
            raise TaskError(
                f"pair {number} has {pair.length} tokens, more than the model's context of {policy.context}; "
                "shorten or remove it."
            )
    return _split(pairs, held_out=section.held_out, left_out=left_out)


# ------------------------------------------------------------------ from a file


def _from_file(data: str, policy: Policy, *, chat: Literal["auto", "never"]) -> list[PreferencePair]:
    """Render prompts as they are at sampling time; encode answers as they stand, with the token that ends one."""
    ends = stop_ids(policy.model, policy.tokenizer)
    end = policy.tokenizer.eos_token_id if policy.tokenizer.eos_token_id in ends else next(iter(ends), None)
    rendered: dict[str, tuple[int, ...]] = {}
    pairs: list[PreferencePair] = []
    for number, prompt in enumerate(read_prompts(data), start=1):
        where = f"{data}, row {number}"
        texts = [_answer(prompt, column, where) for column in ("chosen", "rejected")]
        if texts[0] == texts[1]:
            raise TaskError(f"{where}: chosen and rejected are the same text, which says nothing; remove the row.")
        key = content_hash(prompt.content)
        if key not in rendered:
            rendered[key] = render(policy.tokenizer, prompt, chat=chat)
        chosen, rejected = (_encoded(policy, text, end) for text in texts)
        if not chosen or not rejected:
            raise TaskError(
                f"{where}: an answer is empty, and the tokenizer names no token that ends one; remove the row."
            )
        pairs.append(PreferencePair(prompt_ids=rendered[key], chosen_ids=chosen, rejected_ids=rejected))
    return pairs


def _answer(prompt: Prompt, column: str, where: str) -> str:
    """Return the text of an answer: text as it is, or the one assistant message of a list."""
    if column not in prompt.columns:
        raise TaskError(
            f"{where}: no column `{column}`; a pair has prompt, chosen and rejected. Columns here: "
            f"{', '.join(['prompt', *prompt.columns])}."
        )
    value = prompt.columns[column]
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], Mapping):
        message: Mapping[object, object] = value[0]
        value = message.get("content") if message.get("role") == "assistant" else value
    if not isinstance(value, str):
        raise TaskError(
            f"{where}: {column} is {short(value)}; write the answer as text, or as a list of one message "
            '[{"role": "assistant", "content": "..."}] with everything before it in `prompt`.'
        )
    return value


def _encoded(policy: Policy, text: str, end: int | None) -> tuple[int, ...]:
    ids = tuple(policy.tokenizer(text, add_special_tokens=False)["input_ids"])
    return ids if end is None else (*ids, end)


# ------------------------------------------------------------------ from a ledger


def _from_ledger(run: Path, policy: Policy, left_out: Counter[str]) -> list[PreferencePair]:
    """Pair the best answer of each group with its worst, by the reward that trained; ties go to the first sample.

    The ids are those that were sampled: text that is decoded and encoded again can have others.
    """
    with LedgerReader(ledger_of(run)) as reader:
        sampled_with = reader.run().model.get("tokenizer_hash")
        if sampled_with != tokenizer_hash(policy.tokenizer):
            raise TaskError(
                f"pairs.ledger = {str(run)!r} was sampled with another tokenizer than model.source has, so its ids mean "
                "other text. Name the model of that run, or write the answers to a file and use pairs.data."
            )
        rewards = {row.completion_id: row.verdict.reward for row in reader.verdicts("train") if row.is_primary}
        groups: dict[tuple[int, str], list[StoredCompletion]] = {}
        for stored in reader.completions("train"):
            groups.setdefault((stored.update_no, stored.completion.group_id), []).append(stored)
    pairs = [_best_against_worst(group, rewards, left_out) for group in groups.values()]
    found = [pair for pair in pairs if pair is not None]
    if not found:
        reasons = "; ".join(f"{count} {reason}" for reason, count in left_out.items()) or "it has no group"
        raise TaskError(f"pairs.ledger = {str(run)!r} gives no pair: {reasons}. Use a run with mixed groups.")
    return found


def _best_against_worst(
    group: Sequence[StoredCompletion], rewards: Mapping[int, float | None], left_out: Counter[str]
) -> PreferencePair | None:
    whole = [stored for stored in group if stored.completion.finish == "stop"]
    left_out[TRUNCATED] += len(group) - len(whole)
    scored = [
        (reward, stored.completion)
        for stored in sorted(whole, key=lambda stored: stored.completion.sample)
        if (reward := rewards.get(stored.id)) is not None
    ]
    if len(scored) < 2:
        left_out[FEW] += 1
        return None
    best, worst = max(scored, key=lambda item: item[0]), min(scored, key=lambda item: item[0])
    if best[0] == worst[0]:
        left_out[EQUAL] += 1
        return None
    return PreferencePair(prompt_ids=best[1].prompt_ids, chosen_ids=best[1].token_ids, rejected_ids=worst[1].token_ids)


# ------------------------------------------------------------------ held out


def _split(pairs: Sequence[PreferencePair], *, held_out: float, left_out: Counter[str]) -> PairSet:
    prompts = [content_hash(list(pair.prompt_ids)) for pair in pairs]
    unit: Literal["prompt", "pair"] = "prompt" if len(set(prompts)) >= PROMPTS_TO_SPLIT else "pair"
    keys = prompts if unit == "prompt" else [content_hash(_tokens(pair)) for pair in pairs]
    _, measured = split([Prompt(id=key, content=key) for key in keys], held_out=held_out)
    kept_back = {prompt.id for prompt in measured}
    return PairSet(
        train=tuple(pair for pair, key in zip(pairs, keys, strict=True) if key not in kept_back),
        held_out=tuple(pair for pair, key in zip(pairs, keys, strict=True) if key in kept_back),
        unit=unit,
        left_out={reason: count for reason, count in sorted(left_out.items()) if count},
    )


def _tokens(pair: PreferencePair) -> list[list[int]]:
    return [list(pair.prompt_ids), list(pair.chosen_ids), list(pair.rejected_ids)]
