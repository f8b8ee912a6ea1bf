"""The table of laws of the surrogates in docs/numerics.md says what the code does."""

import math
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from torch import Tensor

from steelyard.numerics.mismatch import MISMATCH
from steelyard.numerics.optim_parts import AdamWParts
from steelyard.numerics.reductions import AGGREGATIONS, Denominators, weighted_sum
from steelyard.numerics.surrogates import SURROGATES, SurrogateTerms, surrogate
from steelyard.numerics.variants import READS

PAGE = Path(__file__).parents[3] / "docs" / "numerics.md"
NUMBERS = {"eps_low": 0.2, "eps_high": 0.2, "dual_clip": 3.0, "eps_max": 5.0}
Name = str


def table_after(heading: str) -> list[list[str]]:
    """The cells of the table under a heading, its header row first."""
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in lines if "---" not in line]


def of(
    name: Name, log_ratios: list[list[float]], advantages: list[float], *, base: float = -1.0
) -> tuple[SurrogateTerms, Tensor]:
    """The terms, and the gradient of their sum, of rows of live tokens with these log ratios."""
    old_BT = torch.full((len(log_ratios), len(log_ratios[0])), base, dtype=torch.float64)
    logp_BT = (old_BT + torch.tensor(log_ratios, dtype=torch.float64)).requires_grad_()
    reads = READS["surrogate"].get(name, ())
    numbers = {key: value if key in reads else None for key, value in NUMBERS.items()}
    advantages_B = torch.tensor(advantages, dtype=torch.float64)
    out = surrogate(name, logp_BT, old_BT, advantages_B, torch.ones_like(old_BT).bool(), **numbers)
    (grad_BT,) = torch.autograd.grad(out.term_BT.sum(), logp_BT)
    return out, grad_BT


def same(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-12, atol=1e-15)


def pull(name: Name, log_ratio: float, advantage: float) -> float:
    return of(name, [[log_ratio]], [advantage])[1].item()


def adds_up(name: Name) -> bool:
    log_ratios = [[0.5, -0.5, 0.1], [0.3, 0.0, -1.0]]
    whole, _ = of(name, log_ratios, [1.0, -2.0])
    parts = [of(name, [row], [a])[0] for row, a in zip(log_ratios, (1.0, -2.0), strict=True)]
    counts = Denominators(n_sequences=2, n_tokens=6, max_length=4)

    def value(out: SurrogateTerms, aggregation: str) -> Tensor:
        mask_BT = torch.ones_like(out.term_BT).bool()
        return weighted_sum(out.term_BT, AGGREGATIONS[aggregation](mask_BT, denominators=counts), mask_BT)

    return all(same(value(whole, key), value(parts[0], key) + value(parts[1], key)) for key in AGGREGATIONS)


ONES = torch.tensor([[1.0, 1.0], [-2.0, -2.0]]).double()
LAWS: dict[str, Callable[[Name], bool]] = {
    "at ρ = 1 the gradient of each token is A": lambda n: same(of(n, [[0, 0], [0, 0]], [1, -2])[1], ONES),
    "at ρ = 1 the term of each token is A": lambda n: same(of(n, [[0, 0], [0, 0]], [1, -2], base=-3)[0].term_BT, ONES),
    "only logp − logp_old matters": lambda n: same(
        of(n, [[0.1, 0.3]], [1], base=-1)[0].term_BT, of(n, [[0.1, 0.3]], [1], base=-2)[0].term_BT
    ),
    "A times c > 0 gives terms times c": lambda n: same(
        3 * of(n, [[0.1, 2.0]], [-1])[0].term_BT, of(n, [[0.1, 2.0]], [-3])[0].term_BT
    ),
    "tokens do not see each other": lambda n: same(
        of(n, [[0.1, 0.3]], [1])[0].term_BT[:, :1], of(n, [[0.1, -0.3]], [1])[0].term_BT[:, :1]
    ),
    "a good token past 1+ε_high has no gradient": lambda n: pull(n, math.log(1.3), 1.0) == 0,
    "a bad token below 1−ε_low has no gradient": lambda n: pull(n, math.log(0.7), -1.0) == 0,
    "a bad token that became likelier is pushed back": lambda n: pull(n, 4.0, -1.0) < 0,
    "the pull of a token is bounded, whatever ρ is": lambda n: abs(pull(n, 10.0, -1.0)) <= 5.0,
    "any cut into micro-batches adds up to the batch": adds_up,
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", list(SURROGATES))
def test_the_table_of_laws_says_what_the_code_does(law: str, name: str):
    header, *rows = table_after("Surrogates: which law holds for which")
    cell = {row[0]: row for row in rows}[law][header.index(name)]
    assert cell.split(",")[0] == ("yes" if LAWS[law](name) else "no")


def test_the_table_of_laws_holds_these_laws_and_these_surrogates():
    header, *rows = table_after("Surrogates: which law holds for which")
    assert [row[0] for row in rows] == list(LAWS)
    assert header[1:] == list(SURROGATES)


def test_the_column_of_holds_names_the_flags_that_can_be_set():
    """Each surrogate over far ratios of both signs: the flags it sets are the flags its row names."""
    for name, *_, holds in table_after("Surrogates")[1:]:
        seen: set[str] = set()
        for log_ratio in (-3.0, 3.0):
            for advantage in (-1.0, 1.0):
                out, _ = of(name, [[log_ratio]], [advantage])
                flags = ("clipped_low", "clipped_high", "capped")
                seen |= {flag for flag in flags if getattr(out, f"{flag}_BT").any()}
        assert seen == {word for word in holds.split(", ") if word != "–"}, name


def test_each_mismatch_weight_has_its_row():
    assert [row[0] for row in table_after("Mismatch weights")[1:]] == list(MISMATCH)


def test_each_part_of_an_optimizer_step_has_its_row():
    assert [row[0] for row in table_after("Optimizer step")[1:]] == [field.name for field in fields(AdamWParts)]
