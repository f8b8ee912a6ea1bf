from hypothesis import given
from hypothesis import strategies as st

from steelyard.update.batching import TrainRow, cut

rows_strategy = st.lists(
    st.builds(
        lambda p, t: TrainRow(
            prompt_ids=tuple(range(10, 10 + p)), token_ids=tuple(range(30, 30 + t)), logprobs=(0.0,) * t, advantage=0.0
        ),
        st.integers(1, 4),
        st.integers(1, 9),
    ),
    max_size=12,
)


@given(rows_strategy, st.integers(1, 60))
def test_every_row_is_in_exactly_one_micro_batch_with_its_own_tokens(rows, budget):
    batches = cut(rows, token_budget=budget, pad_id=0)
    assert sorted(index for batch in batches for index in batch.rows) == list(range(len(rows)))
    for batch in batches:
        for line, index in enumerate(batch.rows):
            row = rows[index]
            assert batch.token_BT[line][batch.mask_BT[line]].tolist() == list(row.token_ids)
            whole = [*row.prompt_ids, *row.token_ids]
            assert batch.input_BS[line, : len(whole)].tolist() == whole
            assert batch.prompt_length == len(row.prompt_ids)


@given(rows_strategy, st.integers(1, 60))
def test_a_micro_batch_stays_within_the_budget_unless_it_is_one_row(rows, budget):
    for batch in cut(rows, token_budget=budget, pad_id=0):
        assert batch.input_BS.numel() <= budget or len(batch.rows) == 1


def test_c13_the_mask_comes_from_lengths_when_pad_equals_stop():
    rows = [
        TrainRow(prompt_ids=(2, 4), token_ids=(5, 7, 2), logprobs=(0.0,) * 3, advantage=0.0),
        TrainRow(prompt_ids=(2, 4), token_ids=(5, 7, 9, 1, 1), logprobs=(0.0,) * 5, advantage=0.0),
    ]
    (batch,) = cut(rows, token_budget=100, pad_id=2)
    assert batch.mask_BT[:, :6].tolist() == [[True] * 3 + [False] * 3, [True] * 5 + [False]]
    assert batch.mask_BT.sum() == 8
