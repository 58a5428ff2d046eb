"""Matrix products on every GPU at once, in PyTorch. Run by itself, in a Python that has it."""

from __future__ import annotations

import json
import time

SIZE = 8192
WARM_S = 5.0  # until clocks and temperatures have settled
ROUNDS = 5
ROUND_S = 1.0


def main() -> None:
    """Print the TFLOP/s of every GPU, round by round, as a JSON object."""
    import torch

    if not torch.cuda.is_available():
        print(json.dumps({"error": "PyTorch finds no GPU: torch.cuda.is_available() is False"}))  # noqa: T201
        return
    kind = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    gpus = range(torch.cuda.device_count())
    operands = []
    for gpu in gpus:
        torch.manual_seed(gpu)
        operands.append([torch.randn(SIZE, SIZE, device=f"cuda:{gpu}", dtype=kind) for _ in range(2)])
    names = [torch.cuda.get_device_name(gpu) for gpu in gpus]

    def all_at_once(products: int) -> list[float]:
        """The seconds that each GPU takes; all get their work before any is waited for."""
        marks = []
        for gpu in gpus:
            with torch.cuda.device(gpu):
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                for _ in range(products):
                    torch.matmul(*operands[gpu])
                end.record()
                marks.append((begin, end))
        for gpu in gpus:
            torch.cuda.synchronize(gpu)
        return [begin.elapsed_time(end) / 1000 for begin, end in marks]

    all_at_once(1)
    slowest_s = max(max(all_at_once(4)) / 4, 1e-6)
    products = max(1, min(2000, int(ROUND_S / slowest_s)))
    warm_s, until = 0.0, time.monotonic() + 4 * WARM_S
    while warm_s < WARM_S and time.monotonic() < until:
        warm_s += max(all_at_once(products))
    rounds = [[2 * SIZE**3 * products / 1e12 / seconds for seconds in all_at_once(products)] for _ in range(ROUNDS)]
    data = {"torch": torch.__version__, "type": str(kind), "size": SIZE, "products": products, "names": names}
    print(json.dumps({**data, "tflops": list(zip(*rounds))}))  # noqa: T201
