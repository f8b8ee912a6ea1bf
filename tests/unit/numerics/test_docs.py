"""docs/numerics.md is a test: its examples run, and its tables say what the code does."""

import doctest
import itertools
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from steelyard.numerics import bandit
from steelyard.numerics.advantages import ADVANTAGES, STANDARDISED, STD_DELTA, advantages
from steelyard.numerics.kl import KL_ESTIMATORS
from steelyard.numerics.reductions import AGGREGATIONS
from steelyard.numerics.surrogates import SURROGATES
from steelyard.numerics.variants import VARIANTS

PAGE = Path(__file__).parents[3] / "docs" / "numerics.md"


def table_after(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, its header row first."""
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in lines if "---" not in line]


def test_the_examples_run():
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted > 25
    assert found.failed == 0


def test_the_table_of_variants_is_the_table_in_the_code():
    rows = table_after("Named variants")[1:]
    for name, *cells in rows:
        objective = VARIANTS[name]
        written = [objective.advantage, objective.ddof, objective.surrogate, objective.eps_low, objective.eps_high]
        written += [objective.aggregation, objective.kl_coef or 0, objective.kl_estimator]
        assert cells[:8] == ["–" if value is None else str(value) for value in written], name
    assert [row[0] for row in rows] == list(VARIANTS)


@pytest.mark.parametrize(
    ("heading", "table"),
    [
        ("Surrogates", SURROGATES),
        ("Aggregation: the denominators", AGGREGATIONS),
        ("KL to the reference", KL_ESTIMATORS),
        ("Preferences", dict.fromkeys(("dpo", "bradley_terry", "ensemble_reward", "ensemble_minimum"))),
    ],
)
def test_each_function_has_its_row(heading: str, table: dict[str, object]):
    assert [row[0] for row in table_after(heading)[1:]] == list(table)


# ------------------------------------------------------------------ law × advantage

REWARDS_B = torch.tensor([1.0, 0.25, 0.5, 3.0, 2.0, 2.0, 2.0, 9.0, 4.0], dtype=torch.float64)
IDS_B = torch.tensor([0, 0, 0, 1, 2, 2, 2, 3, 3])  # informative, lone, constant, informative
SCORED_B = torch.ones(9).bool()
Name = str


def of(name: Name, rewards_B: Tensor, ids_B: Tensor = IDS_B, scored_B: Tensor = SCORED_B) -> Tensor:
    ddof = 0 if name in STANDARDISED else None
    return advantages(name, rewards_B, ids_B, scored_B, resolution=sys.float_info.epsilon, ddof=ddof)


def same(a_B: Tensor, b_B: Tensor) -> bool:
    return torch.allclose(a_B, b_B, rtol=1e3 * STD_DELTA, atol=1e-12)


def permutes(name: Name) -> bool:
    order_B = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    return same(of(name, REWARDS_B[order_B], IDS_B[order_B]), of(name, REWARDS_B)[order_B])


def ignores_unscored(name: Name) -> bool:
    scored_B = torch.tensor([True, False, True, True, True, False, True, True, True])
    kept = (REWARDS_B[scored_B], IDS_B[scored_B], scored_B[scored_B])
    return same(of(name, REWARDS_B.masked_fill(~scored_B, 1e9), IDS_B, scored_B)[scored_B], of(name, *kept))


def alignment(name: Name, *, n_groups: int, size: int) -> float:
    """Cosine between ∇J and E[g] over all batches of these groups of a bandit."""
    logits_K, rewards_K = torch.tensor([0.4, -0.3, 1.1]).double(), torch.tensor([1.0, 0.2, 0.5]).double()
    ids_B = torch.arange(n_groups).repeat_interleave(size)
    mean_K = torch.zeros(3).double()
    for draw in itertools.product(range(3), repeat=n_groups * size):
        y_B = torch.tensor(draw)
        a_B = of(name, rewards_K[y_B], ids_B, torch.ones_like(ids_B).bool())
        mean_K += bandit.policy(logits_K)[y_B].prod() * bandit.reinforce_gradient(logits_K, y_B, a_B)
    exact_K = bandit.exact_gradient(logits_K, rewards_K)
    return torch.nn.functional.cosine_similarity(mean_K, exact_K, dim=0).item()


def groups_are_apart(name: Name) -> bool:
    first_B = IDS_B == 0
    return same(of(name, REWARDS_B)[first_B], of(name, REWARDS_B[first_B], IDS_B[first_B], SCORED_B[first_B]))


LAWS: dict[str, Callable[[Name], bool]] = {
    "a shift of all rewards changes nothing": lambda n: same(of(n, REWARDS_B + 5), of(n, REWARDS_B)),
    "a shift of one group's rewards changes nothing": lambda n: same(
        of(n, REWARDS_B + 5 * (IDS_B == 0)), of(n, REWARDS_B)
    ),
    "rewards times c > 0 give advantages times c": lambda n: same(of(n, 3 * REWARDS_B), 3 * of(n, REWARDS_B)),
    "rewards times c > 0 change nothing": lambda n: same(of(n, 3 * REWARDS_B), of(n, REWARDS_B)),
    "permuted completions have permuted advantages": permutes,
    "advantages sum to 0 in each group": lambda n: all(
        abs(of(n, REWARDS_B)[p == IDS_B].sum()) < 1e-12 for p in range(4)
    ),
    "advantages sum to 0 over the batch": lambda n: bool(abs(of(n, REWARDS_B).sum()) < 1e-12),
    "a constant group gives exactly 0": lambda n: bool((of(n, REWARDS_B)[IDS_B == 2] == 0).all()),
    "a lone member gives exactly 0": lambda n: bool(of(n, REWARDS_B)[3] == 0),
    "an unscored member is as if it were not there": ignores_unscored,
    "a group does not see the others": groups_are_apart,
    "the expected gradient points along ∇J": lambda n: alignment(n, n_groups=1, size=3) > 1 - 1e-9,
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", list(ADVANTAGES))
def test_the_table_of_laws_says_what_the_code_does(law: str, name: str):
    header, *rows = table_after("Advantages: which law holds for which")
    cell = {row[0]: row for row in rows}[law][header.index(name)]
    assert cell.split(",")[0] == ("yes" if LAWS[law](name) else "no")


def test_the_table_of_laws_holds_these_laws():
    assert [row[0] for row in table_after("Advantages: which law holds for which")[1:]] == list(LAWS)


def test_more_groups_bring_batch_standardised_closer_to_the_gradient():
    """What its cell of the last law says."""
    found = [alignment("batch_standardised", n_groups=n, size=2) for n in (1, 2, 3)]
    assert found[0] < found[1] < found[2] < 1 - 1e-9
