"""Who counts where in a batch, and the advantages that come of it."""

import math

import pytest
import torch

from steelyard.evals.judges import Judgement
from steelyard.numerics.variants import VARIANTS
from steelyard.run.batch import Batch, Shaping, credited
from steelyard.types import Completion, Status, Verdict

EPS = torch.finfo(torch.float64).eps
SHAPING = Shaping(max_length=10)


def answer(group: str, reward: float | None, length: int = 2, finish: str = "stop") -> tuple[Completion, Judgement]:
    completion = Completion(
        prompt_id="p",
        group_id=group,
        sample=0,
        policy_version=0,
        prompt_ids=(1,),
        token_ids=tuple(range(length)),
        logprobs=(-1.0,) * length,
        text="",
        finish=finish,
    )
    return completion, Judgement(verdict=Verdict(status=Status.PASSED, reward=reward))


def batch(*answers, shaping: Shaping = SHAPING, dropped=()) -> Batch:
    completions, judgements = zip(*answers, strict=True)
    return Batch(
        completions=completions, judgements=judgements, shaping=shaping, resolution=EPS, dropped=frozenset(dropped)
    )


def advantages(made: Batch, variant: str = "dr_grpo") -> list[float]:
    return [row.advantage for row in credited(made, made.rows(), VARIANTS[variant])]


def test_c18_groups_go_by_group_id_even_for_one_prompt_and_interleaved():
    made = batch(answer("a", 1.0), answer("b", 0.0), answer("a", None), answer("b", 0.5), answer("a", 0.0))
    rewards_B, groups_B, counts_B = made.primary
    assert groups_B.tolist() == [0, 1, 0, 1, 0]
    assert counts_B.tolist() == [True, True, False, True, True]
    assert math.isnan(rewards_B[2])
    assert advantages(made) == [0.5, -0.25, 0.25, -0.5]


def test_c20_a_masked_completion_leaves_loss_and_baseline():
    """Rewards 1, 0 and a truncated 10: the right answer must not be pushed down."""
    members = [answer("a", 1.0), answer("a", 0.0), answer("a", 10.0, 10, "length")]
    grpo = VARIANTS["grpo"].overridden(ddof=1, kl_coef=0.0)
    masked = batch(*members, shaping=Shaping(max_length=10, truncated="mask"))
    assert masked.in_loss == masked.in_baseline == [True, True, False]
    rows = credited(masked, masked.rows(), grpo)
    assert [row.advantage for row in rows] == pytest.approx([0.7071, -0.7071], abs=1e-4)
    loss_only = batch(*members, shaping=Shaping(max_length=10, truncated="mask_loss_only"))
    assert (loss_only.in_loss, loss_only.in_baseline) == ([True, True, False], [True, True, True])
    rows = credited(loss_only, loss_only.rows(), grpo)
    assert [row.advantage for row in rows] == pytest.approx([-0.4842, -0.6658], abs=1e-4)
    kept = batch(*members)
    assert len(credited(kept, kept.rows(), grpo)) == 3


def test_c07_truncated_completions_leave_the_denominator_too():
    members = [answer("a", 1.0, 5), answer("a", 0.0, 10, "length"), answer("a", 0.0, 10)]
    made = batch(*members, shaping=Shaping(max_length=10, truncated="mask"))
    assert sum(len(row.token_ids) for row in credited(made, made.rows(), VARIANTS["dr_grpo"])) == 15


def test_a_batch_in_which_nothing_counts_has_no_rows():
    for members in ([answer("a", None), answer("a", None)], [answer("a", 1.0, 10, "length")] * 2):
        made = batch(*members, shaping=Shaping(max_length=10, truncated="mask"))
        assert credited(made, made.rows(), VARIANTS["grpo"]) == []
        assert made.signal.n_short == 1


def test_dropped_groups_enter_nothing_but_are_counted_by_what_they_were():
    made = batch(answer("a", 1.0), answer("b", 1.0), answer("a", 1.0), answer("b", 0.0), dropped={"a"})
    assert made.in_loss == [False, True, False, True]
    assert advantages(made) == [0.5, -0.5]
    signal = made.signal
    assert (signal.n_groups, signal.n_informative, signal.n_constant, signal.n_short) == (2, 1, 1, 0)


def test_the_overlong_penalty_reaches_advantages_and_not_the_signal():
    made = batch(
        answer("a", 1.0, 2),
        answer("a", 1.0, 9),
        shaping=Shaping(max_length=10, overlong_buffer=4, overlong_penalty=2.0),
    )
    assert advantages(made) == [0.75, -0.75]  # the second loses 2 · 3/4
    assert made.signal.n_constant == 1
    assert made.primary[0].tolist() == [1.0, 1.0]


# ------------------------------------------------------------------ KL in the reward


def scored(made: Batch, old: float, reference: list[float], values: float | None = None):
    """Rows with made-up scores: log-probs equal at every token."""
    rows = []
    for row, ref in zip(made.rows(), reference, strict=True):
        n = len(row.token_ids)
        more = {} if values is None else {"values": torch.full((n,), values)}
        rows.append(
            type(row)(
                prompt_ids=row.prompt_ids,
                token_ids=row.token_ids,
                logprobs=row.logprobs,
                old=torch.full((n,), old),
                reference=torch.full((n,), ref),
                **more,
            )
        )
    return rows


def test_rloo_takes_the_summed_kl_off_the_reward_before_the_baseline():
    rloo = VARIANTS["rloo"].overridden(kl_coef=0.1, kl_estimator="k1", kl_placement="reward")
    made = batch(answer("a", 1.0, 2), answer("a", 0.0, 4))
    rows = credited(made, scored(made, -1.0, [-1.5, -1.25]), rloo)
    first, second = 1.0 - 0.1 * 2 * 0.5, 0.0 - 0.1 * 4 * 0.25
    assert [row.advantage for row in rows] == pytest.approx([first - second, second - first])


def test_rounding_of_float32_log_probs_makes_no_phantom_advantages():
    grpo = VARIANTS["grpo"].overridden(kl_coef=0.1, kl_estimator="k1", kl_placement="reward")
    made = batch(answer("a", 1.0, 2), answer("a", 1.0, 2))
    rows = credited(made, scored(made, -1.0, [-1.0, -1.0 - 2**-23]), grpo)
    assert [row.advantage for row in rows] == [0.0, 0.0]


def test_gae_written_out_by_hand_with_kl_on_every_token():
    """γ = 1, λ = .95, V = .5 everywhere, β k1 = .02·.5 a token; whitened with divisor N over all six tokens."""
    ppo = VARIANTS["ppo"]
    made = batch(answer("a", 1.0, 2), answer("a", 0.0, 4))
    rows = credited(made, scored(made, -1.0, [-1.5, -1.5], values=0.5), ppo)
    raw: list[list[float]] = []
    for reward, length in ((1.0, 2), (0.0, 4)):
        advantage, out = 0.0, []
        for t in reversed(range(length)):
            r = -0.02 * 0.5 + (reward if t == length - 1 else 0.0)
            delta = r + (0.5 if t < length - 1 else 0.0) - 0.5
            advantage = delta + 0.95 * advantage
            out.append(advantage)
        raw.append(out[::-1])
    flat = torch.tensor(raw[0] + raw[1], dtype=torch.float64)
    white = (flat - flat.mean()) / (flat.std(correction=0) + 1e-6)
    found = torch.cat([row.token_advantages for row in rows])
    assert torch.allclose(found, white, atol=1e-9)
    assert torch.allclose(torch.cat([row.returns for row in rows]), flat + 0.5, atol=1e-9)
    assert rows[0].advantage == pytest.approx(white[:2].mean().item())


def test_gae_whitens_over_the_tokens_that_enter_the_loss():
    shaping = Shaping(max_length=10, truncated="mask_loss_only")
    made = batch(answer("a", 1.0, 2), answer("a", 0.0, 3), answer("a", 9.0, 10, "length"), shaping=shaping)
    rows = credited(made, scored(made, -1.0, [-1.0] * 3, values=0.0), VARIANTS["ppo"])
    tokens = torch.cat([row.token_advantages for row in rows])
    assert len(tokens) == 5
    assert tokens.mean().item() == pytest.approx(0.0, abs=1e-9)
    assert tokens.std(correction=0).item() == pytest.approx(1.0, abs=1e-5)


def test_a_row_that_was_not_scored_is_named():
    made = batch(answer("a", 1.0), answer("a", 0.0))
    with pytest.raises(ValueError, match="row 0 was not scored before its advantages"):
        credited(made, made.rows(), VARIANTS["ppo"])
