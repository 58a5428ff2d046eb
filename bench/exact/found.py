"""How many faults in exact products and collectives are found under PyTorch, and how many correct results pass.

Runs in a Python that has PyTorch. Each fault goes into one product of a batch, or into one round of collectives. A
fault that changes no result is absorbed and counted separately: nothing can detect it.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

import torch

from bench.exact.exchanges import exchanges
from bench.exact.faults import IN_REFERENCES, IN_RESULTS, SIZE, Work, draw, is_batched, work
from clusterproof.plugins.evidence.exact.on_node.operands import Kind, data_sets, of_settings
from clusterproof.plugins.evidence.exact.on_node.products import (
    Unavailable,
    Unit,
    choose,
    differing,
    disagreeing,
    due,
    unit_of,
)

CLEAN_SIZE = {"cpu": 16, "cuda": SIZE}  # rows and columns
LONGEST = 64  # terms in a sum
BATCH, CLEAN_BATCH = 64, 4096
LESS = 100  # how many times fewer clean products, for types without batched products
TOLERANCE = 1e-2  # of a comparison by tolerance, as a reference
EXCHANGED = 10  # one fault in this many is in collectives
CLEAN_A_ROUND = 10_000  # clean products for each clean round of collectives


def wrong_products(results: Any) -> Any:
    """Which products of a batch differ in any element."""
    return results.flatten(1).any(1)


def expected(done: Work) -> Any:
    """The correct products."""
    return due(done.integers, done.given, done.data, done.kind, done.product.dtype)


def inject(done: Work, name: str, random: torch.Generator) -> Counter[str]:
    """Inject one fault into each product: how many changed a result, were found, and would be found by a tolerance."""
    if name in IN_REFERENCES:
        broken = IN_REFERENCES[name](done, random)
        rows, _ = disagreeing(done.given.left, done.given.right, broken, int(draw(1 << 30, done, random)[0]))
        reached, detected = wrong_products(differing(broken, done.integers)), wrong_products(rows)
        close = wrong_products(~torch.isclose(broken, done.integers, rtol=TOLERANCE, atol=TOLERANCE))
    else:
        broken = IN_RESULTS[name](done, random)
        reached = wrong_products(differing(broken, done.product))
        detected = wrong_products(differing(broken, expected(done)))
        both = broken.double(), done.product.double()
        close = wrong_products(~torch.isclose(*both, rtol=TOLERANCE, atol=TOLERANCE))
    return Counter(
        absorbed=int((~reached).sum()),
        faults=int(reached.sum()),
        found=int((detected & reached).sum()),
        tolerance=int((close & reached).sum()),
    )


def kinds_here(text: str, device: str) -> tuple[list[tuple[Kind, Unit]], list[str]]:
    """The types that this device multiplies, and why it does not multiply the others."""
    kinds, missing = [], []
    for kind in of_settings(text):
        try:
            kinds.append((kind, unit_of(kind, device, SIZE)))
        except Unavailable as why:
            missing.append(f"{kind.name} was not multiplied: {why}")
    return kinds, missing


def clean(kinds: list[tuple[Kind, Unit]], products: int, seed: int, device: str) -> Counter[str]:
    """Check products without a fault: how many were wrongly reported, or had their reference reported."""
    counts: Counter[str] = Counter()
    many = [(kind, unit) for kind, unit in kinds if is_batched(kind, device)]
    few = [(kind, unit) for kind, unit in kinds if not is_batched(kind, device)]
    rounds = 0
    while counts["clean"] < products:
        for kind, unit in many + (few if rounds % LESS == 0 else []):
            batch = CLEAN_BATCH if is_batched(kind, device) else CLEAN_BATCH // LESS
            sets = list(data_sets(kind, LONGEST))
            operands, is_complement = sets[rounds % len(sets)], rounds // len(sets) % 2 == 1
            choose(unit)
            done = work(kind, unit, operands, seed + rounds, is_complement, CLEAN_SIZE[device], batch, device)
            rows, columns = disagreeing(done.given.left, done.given.right, done.integers, seed + rounds)
            wrong = wrong_products(differing(done.product, expected(done))) | rows.any(1) | columns.any(1)
            counts.update({"clean": len(wrong), "false": int(wrong.sum()), kind.name: len(wrong)})
        rounds += 1
    return counts


def main(text: str, faults: int, products: int, seed: int, device: str) -> None:
    """Print the tables and the figures as one JSON object."""
    torch.set_num_threads(1)
    of_ranks = exchanges(text, max(1, faults // EXCHANGED), max(1, products // CLEAN_A_ROUND), seed, device)
    kinds, missing = kinds_here(text, device)  # after the ranks: a process that has used a GPU cannot fork
    print(*missing, sep="\n")
    names = (*IN_RESULTS, *IN_REFERENCES)
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    random = torch.Generator(device=device).manual_seed(seed)
    rounds = 0
    counts.update({name: count for name, count in of_ranks.items() if name})
    while sum(count["faults"] for count in counts.values()) < faults:
        for kind, unit in kinds:
            choose(unit)
            for operands in data_sets(kind, LONGEST):
                done = work(kind, unit, operands, seed + rounds, rounds % 2 == 1, SIZE, BATCH, device)
                for name in names:
                    counts[name] += inject(done, name, random)
        rounds += 1
    print("| fault | that changed a result | found | found by a tolerance of 1e-2 | absorbed |\n|---|---|---|---|---|")
    for name, count in counts.items():
        shares = [f"{count[word] / max(1, count['faults']):.2%}" for word in ("found", "tolerance")]
        shares[1] = "not tried" if count["exchanged"] else shares[1]
        print(f"| {name} | {count['faults']:,} | {' | '.join(shares)} | {count['absorbed']:,} |")
    whole: Counter[str] = sum(counts.values(), Counter())
    counted = clean(kinds, products, seed, device) + of_ranks[""]
    print(", ".join(f"{count:,} clean of {name}" for name, count in counted.items() if name not in ("clean", "false")))
    figures = {"faults": whole["faults"], "found": whole["found"], "clean": counted["clean"], "false": counted["false"]}
    print(
        f"of {whole['exchanged']:,} in collectives: {whole['named']:,} named a rank or link that it was of, "
        f"{whole['misnamed']:,} another"
    )
    print(
        json.dumps(
            {
                **figures,
                "absorbed": whole["absorbed"],
                "found_by_tolerance": whole["tolerance"],
                "in_collectives": whole["exchanged"],
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
