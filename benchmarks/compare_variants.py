"""Every variant on the bandit and on the booking task, one line changed: `make compare`.

Results go to benchmarks/results/variants.json as they arrive; what is in there already is not run again. The page
docs/variants/which.md shows them, and a test holds the page to the file.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results" / "variants.json"

BANDIT_SEEDS = 200
BANDIT_STEPS = 150
BANDIT_SAMPLES = 4
BANDIT_RATES = (0.25, 0.5, 1.0, 2.0, 4.0)
GOAL = 0.9
"""The share of the right answer at which a bandit run counts as there."""


# ------------------------------------------------------------------ the bandit


def bandit(variant: str, rate: float) -> dict[str, object]:
    """Plain gradient ascent on the lesson's bandit: 4 answers a step, one pass, no KL."""
    import torch

    from steelyard.evals.intervals import proportion
    from steelyard.numerics import bandit as task

    torch.set_num_threads(1)
    rewards_K = torch.tensor(task.LESSON_REWARDS, dtype=torch.float64)
    there, steps = 0, []
    for seed in range(BANDIT_SEEDS):
        taken = _climb(variant, rate, seed, rewards_K)
        if taken is not None:
            there += 1
            steps.append(taken)
    interval = proportion(there, BANDIT_SEEDS)
    return {
        "reached": there,
        "seeds": BANDIT_SEEDS,
        "low": interval.low,
        "high": interval.high,
        "median_steps": statistics.median(steps) if steps else None,
    }


def _climb(variant: str, rate: float, seed: int, rewards_K: object) -> int | None:
    """Return after how many steps the right answer has its share for the first time; None if never."""
    import torch

    from steelyard.numerics import bandit as task
    from steelyard.numerics.advantages import advantages
    from steelyard.numerics.reductions import AGGREGATIONS, Denominators, weighted_sum
    from steelyard.numerics.surrogates import surrogate
    from steelyard.numerics.values import gae, whitened
    from steelyard.numerics.variants import VARIANTS

    objective = VARIANTS[variant].overridden(kl_coef=0.0)
    generator = torch.Generator().manual_seed(seed)
    logits_K = torch.zeros(len(task.LESSON_REWARDS), dtype=torch.float64)
    value = torch.zeros((), dtype=torch.float64)
    ids_B = torch.zeros(BANDIT_SAMPLES, dtype=torch.long)
    mask_BT = torch.ones(BANDIT_SAMPLES, 1, dtype=torch.bool)
    denominators = Denominators(n_sequences=BANDIT_SAMPLES, n_tokens=BANDIT_SAMPLES, max_length=1)
    weights_BT = AGGREGATIONS[objective.aggregation](mask_BT, denominators=denominators)
    eps = torch.finfo(torch.float64).eps
    for step in range(1, BANDIT_STEPS + 1):
        answers_B = task.sample(logits_K, n_samples=BANDIT_SAMPLES, generator=generator)
        rewards_B = rewards_K[answers_B]
        if objective.needs_critic:
            found = gae(
                rewards_B[:, None],
                value.expand(BANDIT_SAMPLES, 1),
                mask_BT,
                gamma=objective.gamma,
                lam=objective.lam,
            )
            credit = whitened(found.advantages_BT, mask_BT, ddof=objective.ddof, resolution=eps)
            value = value + 0.5 * (found.returns_BT.mean() - value)  # a gradient step on the value loss
        else:
            credit = advantages(
                objective.advantage, rewards_B, ids_B, mask_BT[:, 0], resolution=eps, ddof=objective.ddof
            )
        logits_K = logits_K.clone().requires_grad_()
        logp_BT = logits_K.log_softmax(dim=0)[answers_B][:, None]
        terms = surrogate(
            objective.surrogate,
            logp_BT,
            logp_BT.detach(),
            credit,
            mask_BT,
            eps_low=objective.eps_low,
            eps_high=objective.eps_high,
            dual_clip=objective.dual_clip,
            eps_max=objective.eps_max,
        )
        weighted_sum(terms.term_BT, weights_BT, mask_BT).backward()
        logits_K = logits_K.detach() + rate * logits_K.grad
        if task.policy(logits_K)[0] > GOAL:
            return step
    return None


# ------------------------------------------------------------------ the booking task


def booking(variant: str, seed: int, passes: int, directory: Path) -> dict[str, object]:
    """Train in a process of its own and read the ledger; a run that is there already is only read."""
    from steelyard.ledger.reader import LedgerReader

    run = directory / f"{variant}-p{passes}-s{seed}"
    overrides = [f"objective.variant={variant}", f"update.passes={passes}", f"run.seed={seed}", f"run.dir={run}"]
    start = time.perf_counter()
    code, error = 0, ""
    if not (run / "card.json").is_file():
        command = [
            sys.executable,
            "-m",
            "steelyard",
            "train",
            "recipes/booking.toml",
            "run.threads=1",
            "eval.every=40",
            *overrides,
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        code, error = done.returncode, done.stderr[-600:] if done.returncode else ""
    seconds = time.perf_counter() - start
    with LedgerReader(run / "ledger.sqlite") as reader:
        rows, evals = reader.updates(), reader.evals()
    first, last = evals[0].data, evals[-1].data
    return {
        "before": first["score"],
        "after": last["score"],
        "updates": len(rows),
        "completions": sum(row.groups for row in rows) * 16,
        "optimizer_steps": sum(row.optimizer_steps for row in rows),
        "length_after": rows[-1].length_mean,
        "clip_share": statistics.mean((row.clip_share_low or 0.0) + (row.clip_share_high or 0.0) for row in rows),
        "seconds_on_a_shared_machine": round(seconds, 1),
        "exit": code,
        "error": error,
    }


# ------------------------------------------------------------------ all of it


def main() -> None:
    """Run what is missing and write it down as it arrives."""
    from steelyard.numerics.variants import VARIANTS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="training seeds of each variant on booking")
    parser.add_argument("--passes", type=int, nargs="*", default=[1], help="passes over each batch, such as 1 4")
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS))
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "compare")
    args = parser.parse_args()
    found = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {"bandit": {}, "booking": {}}
    found["machine"] = _machine()
    wanted = [(v, s, p) for p in args.passes for s in range(args.seeds) for v in args.variants]
    missing = [(v, s, p) for v, s, p in wanted if f"{v}/passes={p}/seed={s}" not in found["booking"]]
    with ThreadPoolExecutor(args.jobs) as pool:
        jobs = [(key, pool.submit(booking, *key, args.runs)) for key in missing]
        for (variant, seed, passes), job in jobs:
            found["booking"][f"{variant}/passes={passes}/seed={seed}"] = job.result()
            _write(found)
            print(
                variant,
                f"passes {passes} seed {seed}:",
                job.result()["before"],
                "->",
                job.result()["after"],
                flush=True,
            )

    for variant in args.variants:
        for rate in BANDIT_RATES:
            key = f"{variant}/{rate:g}"
            if key not in found["bandit"]:
                found["bandit"][key] = bandit(variant, rate)
        _write(found)


def _write(found: dict[str, object]) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


def _machine() -> dict[str, object]:
    packages = {name: version(name) for name in ("steelyard", "torch", "transformers")}
    return {"platform": platform.platform(), "cores": os.cpu_count(), "load": os.getloadavg()[0], **packages}


if __name__ == "__main__":
    main()
