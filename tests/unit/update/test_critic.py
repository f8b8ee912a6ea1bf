"""PPO in full: the value network, its clipped loss, several passes and minibatches, and the stops that end them."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from steelyard.numerics.variants import VARIANTS
from steelyard.update.batching import TrainRow, cut
from steelyard.update.config import CriticSection, OptimizerSection, UpdateSection
from steelyard.update.critic import Critic
from steelyard.update.hashing import parameter_hash
from steelyard.update.learner import Learner

PPO = VARIANTS["ppo"].overridden(kl_coef=0.0)
LENGTHS, PROMPTS = (3, 7, 2, 10, 1, 5), (4, 4, 4, 2, 2, 3)


def learner(
    model, *, backbone="own", objective=PPO, budget=4096, clip=0.2, coef=0.1, critic_lr=None, lr=1e-3, **update
) -> Learner:
    optimizer = OptimizerSection(lr=lr, max_grad_norm=math.inf)
    settings = CriticSection(backbone=backbone, clip=clip, coef=coef, lr=critic_lr)
    return Learner(
        model,
        objective=objective,
        optimizer=optimizer,
        update=UpdateSection(token_budget=budget, **update),
        total_updates=10,
        temperature=1.0,
        max_length=12,
        reference=copy.deepcopy(model) if objective.kl_coef else None,
        critic=Critic(model, settings, optimizer, total_steps=100),
    )


def batch(job: Learner) -> list[TrainRow]:
    """Six completions as they come out of `credited`, with made-up advantages and returns."""
    generator = torch.Generator().manual_seed(1)

    def numbers(n):
        return torch.randn(n, generator=generator, dtype=torch.float64)

    def ids(n):
        return tuple(torch.randint(2, 258, (n,), generator=generator).tolist())

    rows = [
        TrainRow(prompt_ids=ids(p), token_ids=ids(t), logprobs=(-5.0,) * t)
        for t, p in zip(LENGTHS, PROMPTS, strict=True)
    ]
    return [
        replace(row, token_advantages=numbers(len(row.token_ids)), returns=numbers(len(row.token_ids)))
        for row in job.look(rows)
    ]


def wake(job: Learner) -> None:
    """Give the head weights: at its start of 0 no gradient reaches the backbone."""
    with torch.no_grad():
        job.critic.head.weight.copy_(torch.linspace(-1.0, 1.0, job.critic.head.weight.numel())[None])


def gradients(model, **choices) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of the policy's parameters and of the value network's own."""
    job = learner(model, **choices)
    wake(job)
    job.gradient(batch(job))
    critic = [*(job.critic.backbone.parameters() if job.critic.backbone else ()), *job.critic.head.parameters()]
    flat = [torch.cat([p.grad.double().flatten() for p in part]) for part in ([*model.parameters()], critic)]
    return flat[0], flat[1]


@pytest.mark.parametrize("backbone", ["own", "shared"])
def test_c05_ppo_does_not_depend_on_where_the_batch_is_cut(model64, backbone):
    whole = gradients(model64, backbone=backbone)
    for budget in (1, 15, 30):
        cut_up = gradients(model64, backbone=backbone, budget=budget)
        for ours, theirs in zip(cut_up, whole, strict=True):
            assert theirs.norm() > 0
            assert (ours - theirs).norm() <= 1e-12 * theirs.norm()


def test_the_value_gradient_is_that_of_the_loss_written_out(model64):
    """Oracle: (1/N_tok) Σ ½ max((V − R)², (V_clip − R)²), row by row, unpadded, with V_old 0.3 away."""
    job = learner(model64, clip=0.05)
    rows = [replace(row, values=row.values + 0.3 * (-1) ** i) for i, row in enumerate(batch(job))]
    wake(job)
    tally = job.gradient(rows)
    ours = torch.cat([p.grad.flatten() for p in job.critic.backbone.parameters()])
    job.critic.zero_grad()
    backbone = job.critic.backbone
    assert backbone is not None
    total = torch.zeros((), dtype=torch.float64)
    for row in rows:
        ids = torch.tensor([[*row.prompt_ids, *row.token_ids]])
        hidden = backbone(input_ids=ids).last_hidden_state[0, len(row.prompt_ids) - 1 : -1]
        values = job.critic.head(hidden).squeeze(-1)
        held = row.values + (values - row.values).clamp(-0.05, 0.05)
        total = total + (0.5 * torch.maximum((values - row.returns) ** 2, (held - row.returns) ** 2)).sum()
    (total / sum(LENGTHS)).backward()
    expected = torch.cat([p.grad.flatten() for p in job.critic.backbone.parameters()])
    assert (ours - expected).norm() <= 1e-12 * expected.norm()
    assert tally.total("value") == pytest.approx(total.item() / sum(LENGTHS), rel=1e-12)
    assert 0 < tally.total("value_clipped") < sum(LENGTHS)


def test_networks_of_their_own_do_not_touch_each_other(model64):
    policy, critic = gradients(model64, backbone="own")
    still = learner(model64)
    wake(still)
    rows = [replace(row, returns=torch.zeros_like(row.returns)) for row in batch(still)]
    still.gradient(rows)
    assert torch.equal(torch.cat([p.grad.flatten() for p in model64.parameters()]), policy)
    silent = learner(model64)
    wake(silent)
    silent.gradient([replace(row, token_advantages=0 * row.token_advantages) for row in batch(silent)])
    own = [*silent.critic.backbone.parameters(), *silent.critic.head.parameters()]
    assert torch.equal(torch.cat([p.grad.flatten() for p in own]), critic)
    assert not any(p.grad.any() for p in model64.parameters())


def test_a_shared_backbone_gets_the_value_loss_with_its_coefficient(model64):
    alone, _ = gradients(model64, backbone="own")
    one, three = (gradients(model64, backbone="shared", coef=coef)[0] - alone for coef in (0.1, 0.3))
    assert one.norm() > 0
    assert (three - 3 * one).norm() <= 1e-6 * three.norm()  # transformers computes its norms in float32


def test_both_backbones_read_the_same_state(model):
    """The state before a token: the last hidden state behind the position that predicts it."""
    own, shared = (learner(model, backbone=backbone) for backbone in ("own", "shared"))
    for job in (own, shared):
        wake(job)
    found, again = batch(own), batch(shared)
    for one, other in zip(found, again, strict=True):
        assert torch.equal(one.values, other.values)
        ids = torch.tensor([[*one.prompt_ids, *one.token_ids]])
        hidden = model.base_model(input_ids=ids).last_hidden_state[0, len(one.prompt_ids) - 1 : -1]
        assert torch.allclose(one.values, own.critic.head(hidden).squeeze(-1), atol=1e-5)


def test_values_start_at_zero_and_learn_their_returns(model):
    job = learner(model, passes=30, critic_lr=1e-2, clip=math.inf, lr=0.0)
    rows = batch(job)
    assert not any(row.values.any() for row in rows)
    stats = job.update(rows)
    losses = [step.value_loss for step in stats.steps]
    assert losses[-1] < 0.5 * losses[0]
    assert stats.explained_variance == pytest.approx(0.0, abs=1e-9)
    again = [replace(new, returns=old.returns) for new, old in zip(batch(job), rows, strict=True)]
    assert job.update(again).explained_variance > 0.2


def test_the_value_clip_is_counted(model):
    job = learner(model, passes=20, critic_lr=1e-2, clip=0.01)
    stats = job.update(batch(job))
    assert stats.steps[0].value_clip_share == 0.0
    assert stats.steps[-1].value_clip_share > 0.2


def test_only_the_value_network_moves_when_the_policy_has_no_learning_rate(model):
    job = learner(model, lr=0.0, critic_lr=1e-2)
    before = parameter_hash(model).digest
    start = parameter_hash(job.critic.backbone).digest
    rows = batch(job)
    job.update(rows)
    job.update(rows)  # the head was 0 at the first step and passed nothing down
    assert parameter_hash(model).digest == before
    assert parameter_hash(job.critic.backbone).digest != start


def test_a_value_network_is_saved_with_its_head(model, tmp_path):
    for backbone, parts in (("own", {"head", "backbone"}), ("shared", {"head"})):
        job = learner(model, backbone=backbone)
        job.update(batch(job))
        job.critic.save(tmp_path / "critic.safetensors")
        saved = load_file(tmp_path / "critic.safetensors")
        assert {name.partition(".")[0] for name in saved} == parts
        assert torch.equal(saved["head.weight"], job.critic.head.weight)


def test_an_advantage_of_values_without_a_value_network_is_refused(model):
    with pytest.raises(ValueError, match="needs a value network"):
        Learner(
            model,
            objective=PPO,
            optimizer=OptimizerSection(),
            update=UpdateSection(),
            total_updates=1,
            temperature=1.0,
            max_length=12,
            reference=None,
        )


def test_c16_kl_to_the_start_is_zero_before_the_first_step(model):
    job = learner(model, objective=VARIANTS["ppo"])
    for row in job.look(batch(job)):
        assert torch.equal(row.old, row.reference)
    stats = job.update(batch(job)).steps[0]
    assert (stats.kl, stats.loss_kl) == (0.0, None)
    assert stats.ratio_min == stats.ratio_max == 1.0


# ------------------------------------------------------------------ passes, minibatches, early stops


def shuffle() -> np.random.Generator:
    return np.random.default_rng(5)


def test_a_pass_deals_every_completion_to_one_minibatch(model):
    job = learner(model, passes=2, minibatches=3)
    shares = [job._shares(7, shuffle()) for _ in range(2)]
    assert shares[0] == shares[1]
    assert sorted(index for share in shares[0] for index in share) == list(range(7))
    assert [len(share) for share in shares[0]] == [3, 2, 2]
    stats = job.update(batch(job), shuffle())
    assert len(stats.steps) == 6
    assert sum(step.tokens for step in stats.steps) == 2 * sum(LENGTHS)
    dealt = np.random.default_rng(5)
    first, second = job._shares(7, dealt), job._shares(7, dealt)
    assert first != second, "each pass deals anew"


def test_minibatches_without_completions_fall_away(model):
    job = learner(model, minibatches=9)
    assert len(job.update(batch(job), shuffle()).steps) == 6
    with pytest.raises(ValueError, match="need a generator"):
        job.update(batch(job))


def test_each_minibatch_has_its_own_denominator(model64):
    """Six minibatches of one completion each: the step of one is that of a batch of one."""
    job = learner(model64, minibatches=6, lr=0.0)
    rows = batch(job)
    norms = sorted(step.grad_norm for step in job.update(rows, shuffle()).steps)
    alone = sorted(learner(model64, lr=0.0).update([row]).steps[0].grad_norm for row in rows)
    assert norms == pytest.approx(alone, rel=1e-6)


def test_pi_old_is_the_policy_before_the_first_minibatch(model):
    job = learner(model, minibatches=2, lr=3e-2)
    stats = job.update(batch(job), shuffle())
    assert stats.steps[0].ratio_min == pytest.approx(1.0, abs=1e-5)
    assert abs(stats.steps[1].ratio_max - 1.0) > 0.01


@pytest.mark.parametrize(
    ("limit", "name"), [({"max_kl": 0.02}, "update.max_kl = 0.02"), ({"max_clip_share": 0.3}, "max_clip_share = 0.3")]
)
def test_a_batch_that_has_been_used_up_is_left(model, limit, name):
    job = learner(model, passes=8, lr=1e-2, **limit)
    stats = job.update(batch(job))
    assert 1 < len(stats.steps) < 8
    assert name in stats.stopped
    assert stats.steps[-1].skipped == stats.stopped
    assert stats.steps[-1].grad_norm_clipped is None
    assert all(step.skipped is None for step in stats.steps[:-1])
    last = stats.steps[-1]
    measured = last.approx_kl if "max_kl" in limit else last.clip_share_low + last.clip_share_high
    assert measured > next(iter(limit.values()))


def test_the_step_that_is_stopped_moves_nothing(model):
    """With one pass less the parameters are the same, bit for bit; so is the value network."""
    stopped = learner(model, passes=8, lr=1e-2, max_kl=0.02)
    twin = copy.deepcopy(model)
    stats = stopped.update(batch(stopped))
    short = learner(twin, passes=len(stats.steps) - 1, lr=1e-2)
    short.update(batch(short))
    assert parameter_hash(model).digest == parameter_hash(twin).digest
    assert parameter_hash(stopped.critic.backbone).digest == parameter_hash(short.critic.backbone).digest


def test_limits_that_are_not_reached_stop_nothing(model):
    stats = (job := learner(model, passes=3, max_kl=10.0, max_clip_share=0.99)).update(batch(job))
    assert (len(stats.steps), stats.stopped) == (3, None)


def test_the_schedule_follows_updates_whether_or_not_they_were_stopped(model):
    job = learner(model, passes=8, lr=1e-2, max_kl=0.02)
    job.optimizer.settings = job.optimizer.settings.model_copy(update={"schedule": "linear"})
    first = job.update(batch(job))
    assert first.stopped is not None
    assert job.update(batch(job)).steps[0].lr == pytest.approx(1e-2 * 0.9)


def test_the_approximate_kl_is_the_mean_of_k3_the_right_way_round(model):
    """KL(π_old‖π) from tokens of π_old: the mean of ρ − 1 − log ρ."""
    job = learner(model, passes=2, lr=1e-2)
    rows = batch(job)
    olds = job._scored(rows, old=True, reference=False)
    job.settings = job.settings.model_copy(update={"passes": 1})
    job.update(rows)
    expected = []
    for micro in cut(rows, token_budget=4096, pad_id=0):
        now_BT = job.logprobs(micro)
        for line, index in enumerate(micro.rows):
            d = (now_BT[line][micro.mask_BT[line]] - olds[index].old).double()
            expected += (d.exp() - 1 - d).tolist()
    seen = job.gradient(olds).mean("drift")
    assert seen == pytest.approx(np.mean(expected), rel=1e-4)
    assert seen > 1e-4
