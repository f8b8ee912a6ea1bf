"""From a prompt to the token ids that the model reads, and from sampled ids back to text."""

from collections.abc import Sequence
from typing import Literal, cast

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from steelyard.errors import TaskError
from steelyard.types import Prompt


def render(tokenizer: PreTrainedTokenizerBase, prompt: Prompt, *, chat: Literal["auto", "never"]) -> tuple[int, ...]:
    """Return the token ids of a prompt.

    Chat messages always go through the tokenizer's chat template. Plain text goes through it as one user
    message when the tokenizer has a template and `chat` is "auto"; otherwise it is tokenised as it stands,
    with the tokenizer's own special tokens.

    Raises:
        TaskError: If the prompt is chat messages and the tokenizer has no chat template, or it renders to nothing.
    """
    if isinstance(prompt.content, str):
        if chat == "never" or tokenizer.chat_template is None:
            return _not_empty(tokenizer(prompt.content)["input_ids"], prompt)
        messages = [{"role": "user", "content": prompt.content}]
    else:
        messages = [dict(message) for message in prompt.content]
        if tokenizer.chat_template is None:
            raise TaskError(
                f"prompt {prompt.id!r} is chat messages, but the model's tokenizer has no chat template. "
                "Use plain-text prompts with this model, or a chat model."
            )
    text = cast(str, tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
    return _not_empty(tokenizer(text, add_special_tokens=False)["input_ids"], prompt)


def _not_empty(ids: object, prompt: Prompt) -> tuple[int, ...]:
    if not ids:
        raise TaskError(f"prompt {prompt.id!r} renders to no token at all; give it some text.")
    return tuple(cast(list[int], ids))


def stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Return every id that ends an answer: those of the generation config and the tokenizer's own."""
    configured = model.generation_config.eos_token_id if model.generation_config is not None else None
    listed = list(configured) if isinstance(configured, list | tuple) else [configured]
    return tuple(sorted({token for token in [*listed, tokenizer.eos_token_id] if token is not None}))


def decode_answer(tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int], stops: Sequence[int]) -> str:
    """Return the text of an answer without its stop token; other special tokens are dropped."""
    ids = list(token_ids)
    if ids and ids[-1] in stops:
        ids.pop()
    return cast(str, tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))
