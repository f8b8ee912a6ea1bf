"""Two ranks over gloo make the one-process loss and gradient: no rank divides by its own tokens.

The test is rank 0; rank 1 is this file, run as a program.
"""

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch import Tensor, distributed

from steelyard.numerics.reductions import AGGREGATIONS, Denominators, weighted_sum
from steelyard.numerics.surrogates import SURROGATES, surrogate
from steelyard.numerics.variants import READS

NUMBERS = {"eps_low": 0.2, "eps_high": 0.28, "dual_clip": 1.5, "eps_max": 1.4}
LENGTHS = [5, 1]
"""One completion each: the lone token must not weigh five times as much."""


def join(rank: int, store: Path) -> None:
    address, patience = f"file://{store}", timedelta(seconds=20)
    distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2, timeout=patience)


def summed(x: Tensor) -> Tensor:
    if distributed.is_initialized():
        distributed.all_reduce(x)
    return x


def losses_and_gradients(rows: list[int]) -> dict[str, Tensor]:
    """Loss and gradient of a small model for each surrogate and aggregation, summed over the ranks."""
    generator = torch.Generator().manual_seed(7)
    start_DV = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    hidden_BTD = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64)[rows]
    ids_BT = torch.randint(4, (2, 5), generator=generator)[rows]
    shift_BT = 0.4 * torch.randn(2, 5, generator=generator, dtype=torch.float64)[rows]
    advantages_B = torch.tensor([1.0, -2.0], dtype=torch.float64)[rows]
    mask_BT = torch.arange(5) < torch.tensor(LENGTHS)[rows, None]
    n_sequences, n_tokens = summed(torch.tensor([len(rows), int(mask_BT.sum())])).tolist()
    denominators = Denominators(n_sequences=n_sequences, n_tokens=n_tokens, max_length=8)

    found: dict[str, Tensor] = {}
    for name in SURROGATES:
        reads = READS["surrogate"].get(name, ())
        numbers = {key: value if key in reads else None for key, value in NUMBERS.items()}
        for aggregation, weights_of in AGGREGATIONS.items():
            leaf_DV = start_DV.clone().requires_grad_()
            logits_BTV = hidden_BTD @ leaf_DV
            logp_BT = logits_BTV.log_softmax(-1).gather(-1, ids_BT[..., None]).squeeze(-1)
            terms = surrogate(name, logp_BT, logp_BT.detach() - shift_BT, advantages_B, mask_BT, **numbers)
            loss = -weighted_sum(terms.term_BT, weights_of(mask_BT, denominators=denominators), mask_BT)
            (grad_DV,) = torch.autograd.grad(loss, leaf_DV)
            found[f"{name}, {aggregation}"] = summed(torch.cat([loss.detach().reshape(1), grad_DV.flatten()]))
    ones_BT = torch.ones(len(rows), 5)
    weights_BT = AGGREGATIONS["token_mean"](mask_BT, denominators=denominators)
    found["a loss of 1 per token"] = summed(weighted_sum(ones_BT, weights_BT, mask_BT))
    return found


def test_c05_two_ranks_with_five_tokens_and_one(tmp_path: Path):
    whole = losses_and_gradients([0, 1])
    store = tmp_path / "store"
    other = subprocess.Popen([sys.executable, __file__, str(store)])
    try:
        join(0, store)
        mine = losses_and_gradients([0])
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()
        assert other.wait(timeout=40) == 0
    assert len(whole) == 25
    for key, expected in whole.items():
        torch.testing.assert_close(mine[key], expected, rtol=1e-13, atol=1e-15, msg=key)
        assert expected.any(), key
    assert whole["a loss of 1 per token"].item() == pytest.approx(1.0)


if __name__ == "__main__":
    join(1, Path(sys.argv[1]))
    losses_and_gradients([1])
    distributed.destroy_process_group()
