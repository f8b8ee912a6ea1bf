import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from steelyard.rollout.draws import DrawKey, uniforms

KEY = DrawKey(seed=1, purpose="train", update=2, prompt_id="p")
PINNED = [0.407921248955028, 0.5360566913085512, 0.8568821932808734]


def test_the_stream_is_pinned():
    """A change of these values would break the replay of every ledger written before it."""
    np.testing.assert_allclose(uniforms(KEY, sample=0, count=3), PINNED, rtol=0, atol=0)


def test_every_part_of_the_key_matters():
    variants = [
        DrawKey(seed=2, purpose="train", update=2, prompt_id="p"),
        DrawKey(seed=1, purpose="eval", update=2, prompt_id="p"),
        DrawKey(seed=1, purpose="train", update=3, prompt_id="p"),
        DrawKey(seed=1, purpose="train", update=2, prompt_id="q"),
    ]
    streams = [uniforms(key, sample=0, count=4).tolist() for key in [KEY, *variants]]
    streams.append(uniforms(KEY, sample=1, count=4).tolist())
    assert len({tuple(stream) for stream in streams}) == 6


def test_parts_of_the_key_do_not_run_together():
    a = DrawKey(seed=1, purpose="train", update=12, prompt_id="3")
    b = DrawKey(seed=1, purpose="train", update=1, prompt_id="23")
    assert uniforms(a, sample=0, count=2).tolist() != uniforms(b, sample=0, count=2).tolist()


@given(st.text(), st.integers(1, 50))
def test_a_longer_request_extends_a_shorter_one(prompt_id, count):
    key = DrawKey(seed=0, purpose="train", update=1, prompt_id=prompt_id)
    long = uniforms(key, sample=3, count=60)
    assert ((long >= 0) & (long < 1)).all()
    np.testing.assert_array_equal(uniforms(key, sample=3, count=count), long[:count])
