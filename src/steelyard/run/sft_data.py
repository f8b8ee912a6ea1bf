"""The pairs that a warm-up learns from, and the order in which it reads them."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from transformers import PreTrainedTokenizerFast

from steelyard.content import content_hash
from steelyard.errors import TaskError
from steelyard.rollout.prompts import render
from steelyard.run.sft_recipe import CorpusSection, SftRecipe
from steelyard.tasks.booking.prompt import PROMPT
from steelyard.tasks.booking_corpus import programs
from steelyard.types import Prompt
from steelyard.update.tiny import END_ID

Messages = tuple[dict[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A prompt and the answer to learn."""

    prompt: Messages
    """Chat messages."""
    completion: str
    """The answer, without the token that ends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A pair in tokens."""

    prompt_ids: tuple[int, ...]
    """The rendered prompt, up to the first token of the answer."""
    completion_ids: tuple[int, ...]
    """The answer with the token that ends it; the loss counts these."""


def load_pairs(corpus: CorpusSection, *, seed: int) -> list[Pair]:
    """Return the corpus that a recipe names.

    Raises:
        TaskError: If a file cannot be read, or a line of it is no pair.
    """
    if corpus.data is not None:
        return _read_pairs(Path(corpus.data))
    prompt = _messages(PROMPT.content)
    drawn = programs(
        count=corpus.programs,
        seed=seed,
        right_share=corpus.right_share,
        inclusive_share=corpus.inclusive_share,
    )
    return [Pair(prompt=prompt, completion=program.source) for program in drawn]


def corpus_hash(pairs: Sequence[Pair]) -> str:
    """SHA-256 over every prompt and completion, in order."""
    return content_hash([[list(pair.prompt), pair.completion] for pair in pairs])


def tokenise(pairs: Sequence[Pair], tokenizer: PreTrainedTokenizerFast, *, context: int) -> list[Row]:
    """Render prompts through the chat template, exactly as at sampling time, and encode answers.

    Raises:
        TaskError: If a pair is longer than the context.
    """
    rendered: dict[str, tuple[int, ...]] = {}
    answers = tokenizer([pair.completion for pair in pairs], add_special_tokens=False)["input_ids"]
    rows: list[Row] = []
    for number, (pair, answer) in enumerate(zip(pairs, answers, strict=True), start=1):
        key = json.dumps(pair.prompt)
        if key not in rendered:
            rendered[key] = render(tokenizer, Prompt(id=key, content=pair.prompt), chat="auto")
        row = Row(prompt_ids=rendered[key], completion_ids=(*answer, END_ID))
        length = len(row.prompt_ids) + len(row.completion_ids)
        if length > context:
            raise TaskError(
                f"pair {number} of the corpus has {length} tokens, more than model.context = {context}; "
                "raise model.context or shorten the pair."
            )
        rows.append(row)
    return rows


def batches(rows: Sequence[Row], recipe: SftRecipe, *, rng: np.random.Generator) -> Iterator[list[Row]]:
    """Yield one batch per step: the corpus in a new random order each time round, cut by completion tokens."""
    order: list[int] = []
    for _ in range(recipe.sft.steps):
        batch: list[Row] = []
        tokens = 0
        while not batch or tokens < recipe.sft.batch_tokens:
            order = order or [int(index) for index in rng.permutation(len(rows))]
            batch.append(rows[order.pop()])
            tokens += len(batch[-1].completion_ids)
        yield batch


# ------------------------------------------------------------------ details


def _messages(content: object) -> Messages:
    if isinstance(content, str):
        return ({"role": "user", "content": content},)
    if not isinstance(content, list | tuple) or not content or not all(_is_message(item) for item in content):
        raise ValueError('neither a text nor a list of {"role", "content"} messages')
    return tuple({"role": item["role"], "content": item["content"]} for item in content)


def _is_message(item: object) -> bool:
    return isinstance(item, dict) and isinstance(item.get("role"), str) and isinstance(item.get("content"), str)


def _read_pairs(path: Path) -> list[Pair]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(
            f"corpus.data = {str(path)!r} cannot be read: {error}. It must be a UTF-8 JSONL file."
        ) from None
    pairs = [_read_pair(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not pairs:
        raise TaskError(
            f"corpus.data = {str(path)!r} holds no pairs; each line is {{'prompt': ..., 'completion': ...}}."
        )
    return pairs


def _read_pair(path: Path, number: int, line: str) -> Pair:
    try:
        row = json.loads(line)
        prompt, completion = _messages(row["prompt"]), row["completion"]
        if not isinstance(completion, str):
            raise TypeError("completion is no text")
        return Pair(prompt=prompt, completion=completion)
    except (ValueError, TypeError, KeyError) as error:
        raise TaskError(
            f'{path}, line {number}: not {{"prompt": text or messages, "completion": text}}: {error}'
        ) from None
