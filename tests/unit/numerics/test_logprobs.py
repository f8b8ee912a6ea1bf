import math

import pytest
import torch

from steelyard.numerics.logprobs import token_entropy, token_logprobs


def one_token(logits: list[float], token: int, *, temperature: float) -> float:
    return token_logprobs(torch.tensor([[logits]]), torch.tensor([[token]]), temperature=temperature).item()


def test_c72_temperature_of_sampling_is_temperature_of_scoring():
    at_half, at_one = (one_token([2.0, 0.0], 0, temperature=t) for t in (0.5, 1.0))
    assert at_half == pytest.approx(-0.01815, abs=5e-6)
    assert at_one == pytest.approx(-0.12693, abs=5e-6)
    assert math.exp(at_one - at_half) == pytest.approx(0.8969, abs=5e-5)  # the ratio that mixing them would give


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan, math.inf])
def test_c72_no_scoring_without_a_positive_temperature(temperature: float):
    logits_BTV = torch.zeros(1, 1, 2)
    with pytest.raises(ValueError, match=f"temperature must be a finite number above 0, got {temperature}"):
        token_logprobs(logits_BTV, torch.zeros(1, 1).long(), temperature=temperature)
    with pytest.raises(ValueError, match="temperature"):
        token_entropy(logits_BTV, temperature=temperature)


def test_probabilities_sum_to_one_over_the_vocabulary():
    logits_V = torch.randn(7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    total = sum(
        math.exp(token_logprobs(logits_V[None, None], torch.tensor([[v]]), temperature=0.7).item()) for v in range(7)
    )
    assert total == pytest.approx(1.0, abs=1e-14)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_half_precision_accumulates_in_float32_and_float64_stays(given: torch.dtype, expected: torch.dtype):
    # 4096 equal logits: a sum of exps in float16 or bfloat16 loses most of them.
    logits_BTV = torch.zeros(1, 1, 4096, dtype=given)
    logp_BT = token_logprobs(logits_BTV, torch.zeros(1, 1).long(), temperature=1.0)
    entropy_BT = token_entropy(logits_BTV, temperature=1.0)
    assert (logp_BT.dtype, entropy_BT.dtype) == (expected, expected)
    assert logp_BT.item() == pytest.approx(-math.log(4096), rel=1e-6)
    assert entropy_BT.item() == pytest.approx(math.log(4096), rel=1e-6)


def test_huge_logits_do_not_overflow():
    assert one_token([1e4, 1e4], 0, temperature=1.0) == pytest.approx(-math.log(2), rel=1e-6)
    assert token_entropy(torch.tensor([[[1e4, 1e4]]]), temperature=1.0).item() == pytest.approx(math.log(2), rel=1e-6)


def test_tokens_that_cannot_be_sampled_leave_value_and_gradient_finite():
    logits_BTV = torch.tensor([[[1.0, 2.0, -math.inf]]], requires_grad=True)
    logp = token_logprobs(logits_BTV, torch.tensor([[0]]), temperature=1.0).sum()
    entropy = token_entropy(logits_BTV, temperature=1.0).sum()
    (grad_BTV,) = torch.autograd.grad(logp + entropy, logits_BTV)
    two_BTV = torch.tensor([[[1.0, 2.0]]])
    assert logp.item() == token_logprobs(two_BTV, torch.tensor([[0]]), temperature=1.0).item()
    assert entropy.item() == pytest.approx(token_entropy(two_BTV, temperature=1.0).item(), rel=1e-6)
    assert torch.isfinite(grad_BTV).all()
    assert grad_BTV[0, 0, 2].item() == 0.0


def test_gradients_match_finite_differences():
    generator = torch.Generator().manual_seed(1)
    logits_BTV = torch.randn(2, 2, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    ids_BT = torch.randint(3, (2, 2), generator=generator)
    assert torch.autograd.gradcheck(lambda z: token_logprobs(z, ids_BT, temperature=0.7), (logits_BTV,))
    assert torch.autograd.gradgradcheck(lambda z: token_logprobs(z, ids_BT, temperature=0.7), (logits_BTV,))
    assert torch.autograd.gradcheck(lambda z: token_entropy(z, temperature=0.7), (logits_BTV,))


def test_gradient_of_a_log_prob_is_one_hot_minus_policy():
    logits_BTV = torch.tensor([[[0.3, -1.0, 2.0]]], requires_grad=True)
    token_logprobs(logits_BTV, torch.tensor([[1]]), temperature=0.5).sum().backward()
    assert logits_BTV.grad is not None
    expected = (torch.tensor([0.0, 1.0, 0.0]) - (logits_BTV[0, 0].detach() / 0.5).softmax(0)) / 0.5
    torch.testing.assert_close(logits_BTV.grad[0, 0], expected)


@pytest.mark.usefixtures("unchecked")
def test_shapes_that_do_not_agree_are_named():
    with pytest.raises(ValueError, match=r"\(1, 2, 3\) do not fit token ids of shape \(1, 1\)"):
        token_logprobs(torch.zeros(1, 2, 3), torch.zeros(1, 1).long(), temperature=1.0)


def test_an_empty_batch_is_empty():
    logits_BTV = torch.zeros(0, 3, 5, requires_grad=True)
    logp_BT = token_logprobs(logits_BTV, torch.zeros(0, 3).long(), temperature=1.0)
    entropy_BT = token_entropy(logits_BTV, temperature=1.0)
    (logp_BT.sum() + entropy_BT.sum()).backward()
    assert logp_BT.shape == entropy_BT.shape == (0, 3)


def test_half_precision_gradients_come_back_in_half_precision():
    logits_BTV = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(5)).bfloat16().requires_grad_()
    ids_BT = torch.tensor([[0, 1, 2], [3, 4, 5]])
    token_logprobs(logits_BTV, ids_BT, temperature=0.5).sum().backward()
    wide_BTV = logits_BTV.detach().float().requires_grad_()
    wide_BTV.div(0.5).log_softmax(-1).gather(-1, ids_BT[..., None]).sum().backward()
    assert logits_BTV.grad is not None
    assert wide_BTV.grad is not None
    assert logits_BTV.grad.dtype == torch.bfloat16
    torch.testing.assert_close(logits_BTV.grad.float(), wide_BTV.grad, atol=1e-2, rtol=1e-2)
