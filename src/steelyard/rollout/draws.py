"""Random draws that belong to a sample, not to the moment at which they are made.

Every draw comes from a generator keyed by (seed, purpose, update, prompt id, sample index): the key is
hashed with BLAKE2b and seeds a Philox generator. One uniform is used per generated token, so the
uniforms of a completion never depend on which rows share its batch, or on what was sampled before it.
"""

import hashlib
import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawKey:
    """Everything that a completion's draws depend on, but its sample index."""

    seed: int
    """The training seed."""
    purpose: str
    """train or eval: the two never share draws."""
    update: int
    """The update that the completion feeds; 0 in evaluations, so that states are measured on equal draws."""
    prompt_id: str
    """The prompt's stable id."""


def generator(key: DrawKey, *, sample: int) -> np.random.Generator:
    """Return the generator of one completion."""
    text = json.dumps([key.seed, key.purpose, key.update, key.prompt_id, sample], ensure_ascii=True)
    digest = hashlib.blake2b(text.encode(), digest_size=16, person=b"steelyard").digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))


def uniforms(key: DrawKey, *, sample: int, count: int) -> NDArray[np.float64]:
    """Return the first `count` uniforms in [0, 1) of one completion; a longer request extends a shorter one."""
    return generator(key, sample=sample).random(count)
