import math
from typing import Any

import pytest
import torch
from torch import Tensor

from steelyard.numerics.optim_parts import AdamWParts, adamw_parts

USUAL: dict[str, Any] = {"lr": 0.01, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.1}


def one_step(g: float, m: float, v: float, *, theta: float = 1.0, step: int = 2, **numbers: Any) -> AdamWParts:
    tensors = (torch.tensor([x], dtype=torch.float64) for x in (theta, g, m, v))
    return adamw_parts(*tensors, step=step, **(USUAL | numbers))


@pytest.mark.parametrize(
    "numbers",
    [
        USUAL,
        USUAL | {"weight_decay": 0.0},
        USUAL | {"betas": (0.0, 0.0)},
        USUAL | {"betas": (0.0, 0.999)},
        USUAL | {"betas": (0.95, 0.0)},
        USUAL | {"eps": 1e-3},
        USUAL | {"lr": 0.0},
        USUAL | {"lr": 3.0, "weight_decay": 0.5},
    ],
)
@pytest.mark.parametrize("shape", [(4, 3), (5,), (), (0,)])
def test_the_parts_add_up_to_the_step_of_torch(numbers: dict[str, Any], shape: tuple[int, ...]):
    """Six steps, one of them without a gradient, tensor by tensor against torch.optim.AdamW."""
    generator = torch.Generator().manual_seed(0)
    leaves = [torch.nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64)) for _ in range(2)]
    optimizer = torch.optim.AdamW(leaves, **numbers)
    for step in range(1, 7):
        parts: list[AdamWParts] = []
        before: list[Tensor] = []
        for leaf in leaves:
            leaf.grad = torch.randn(shape, generator=generator, dtype=torch.float64) * (step != 4)
            state = optimizer.state[leaf]
            m, v = (state.get(key, torch.zeros_like(leaf)) for key in ("exp_avg", "exp_avg_sq"))
            parts.append(adamw_parts(leaf, leaf.grad, m.clone(), v.clone(), step=step, **numbers))
            before.append(leaf.detach().clone())
        optimizer.step()
        for leaf, start, part in zip(leaves, before, parts, strict=True):
            torch.testing.assert_close(
                leaf.detach() - start, part.total, rtol=1e-12, atol=1e-15 * max(1, numbers["lr"])
            )


def test_three_statements_zero_gradient_and_unchanged_parameters_are_not_one():
    """objectives §7: no gradient, and AdamW moves on while its first moment lives, even without decay."""
    parts = one_step(0.0, 0.1, 0.01, weight_decay=0.0)
    assert parts.fresh.item() == 0.0
    assert parts.decay.item() == 0.0
    # −0.01 · 0.9 · 0.1 / (1 − 0.81) / √(0.99 · 0.01 / (1 − 0.99²))
    assert parts.carried.item() == pytest.approx(-0.01 * 0.09 / 0.19 / math.sqrt(0.0099 / 0.0199), rel=1e-6)
    assert parts.total.item() == parts.carried.item()


def test_each_part_is_0_exactly_when_its_cause_is():
    assert one_step(0.3, 0.0, 0.01).carried.item() == 0.0
    assert one_step(0.0, 0.3, 0.01).fresh.item() == 0.0
    assert one_step(0.3, 0.3, 0.01, weight_decay=0.0).decay.item() == 0.0
    assert one_step(0.0, 0.0, 0.0, weight_decay=0.0).total.item() == 0.0  # 0/ε, not 0/0
    assert one_step(0.3, 0.3, 0.01, betas=(0.0, 0.99)).carried.item() == 0.0


def test_the_first_step_is_all_fresh_and_of_the_size_of_lr():
    parts = one_step(-7.0, 0.0, 0.0, step=1, weight_decay=0.0)
    assert parts.total.item() == parts.fresh.item() == pytest.approx(0.01, rel=1e-6)


def test_the_parts_can_point_against_each_other():
    parts = one_step(-0.3, 0.3, 0.04)
    assert parts.carried.item() < 0 < parts.fresh.item()
    assert parts.decay.item() == pytest.approx(-0.01 * 0.1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_low_precision_is_widened_and_nothing_is_written_to(dtype: torch.dtype):
    generator = torch.Generator().manual_seed(1)
    tensors = [torch.rand(9, generator=generator).to(dtype) for _ in range(4)]
    kept = [x.clone() for x in tensors]
    tensors[0].requires_grad_()
    parts = adamw_parts(*tensors, step=3, **USUAL)
    exact = adamw_parts(*(x.double() for x in tensors), step=3, **USUAL)
    for name in ("carried", "fresh", "decay", "total"):
        part = getattr(parts, name)
        assert part.dtype == torch.float32
        assert not part.requires_grad
        torch.testing.assert_close(part.double(), getattr(exact, name), rtol=1e-5, atol=1e-12)
    assert all(torch.equal(x, y) for x, y in zip(tensors, kept, strict=True))


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ({"step": 0}, "counted from 1; got 0"),
        ({"betas": (1.0, 0.9)}, r"betas must each be in \[0, 1\), got \(1.0, 0.9\)"),
        ({"betas": (0.9, -0.1)}, r"betas .*\(0.9, -0.1\)"),
        ({"eps": 0.0}, "eps must be finite and above 0, got 0.0"),
        ({"eps": math.nan}, "eps"),
        ({"lr": -1.0}, "lr must be finite and at least 0, got -1.0"),
        ({"lr": math.inf}, "lr"),
        ({"weight_decay": -0.1}, "weight_decay must be finite and at least 0, got -0.1"),
        ({"weight_decay": math.nan}, "weight_decay"),
    ],
)
def test_numbers_out_of_range_are_named(numbers: dict[str, Any], reason: str):
    with pytest.raises(ValueError, match=reason):
        one_step(0.1, 0.1, 0.1, **numbers)


@pytest.mark.usefixtures("unchecked")
def test_shapes_that_do_not_agree_are_named():
    two, three = torch.zeros(2), torch.zeros(3)
    with pytest.raises(ValueError, match=r"one shape, got \(2,\), \(2,\), \(2,\), \(3,\)"):
        adamw_parts(two, two, two, three, step=1, **USUAL)
