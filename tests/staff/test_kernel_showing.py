"""What the lab prints of a kernel."""

from __future__ import annotations

import pytest
import torch

from assignment.provided.lab.kernel import GPUS, lab, predict, show
from assignment.provided.lab.kernel.gpus import NoRate
from tests.staff import lab_kernels as kernels


def printed(seen, capsys, gpu=None):
    show(seen, gpu)
    return capsys.readouterr().out.splitlines()


def test_bytes_of_every_argument(capsys):
    x, index = torch.randn(64, 2), torch.tensor([0, 2, 2, 60], dtype=torch.int32)
    with lab() as seen:  # rows 0 and 2 of x lie in one sector of 32 bytes
        kernels.gather[(2,)](x, index, torch.empty(4, 2), 4, WIDTH=2, TILE=2)
    assert printed(seen, capsys) == [
        "gather: 2 programs (2 × 1 × 1) of 4 warps",
        "                   requested        unique    in sectors",
        "  reads  index            16            16            64",
        "  reads  x                32            24            96",
        "  writes out              32            32            64",
        "  FLOPs  0",
    ]


def test_products_time_and_sum_of_launches(capsys):
    a, out = torch.randn(16, 16).half(), torch.empty(16, 16)
    with lab() as seen:
        for _ in range(2):
            kernels.matmul[(1, 1)](a, a, out, 16, 16, 16, TM=16, TN=16, TK=16)
        out * 2
    lines = printed(seen, capsys, GPUS["L4"])
    assert lines.count("  FLOPs  8,192 in fp16 products, 256 others") == 2
    # 2048 bytes: at 300 GB/s, and of one program at 32 bytes in each of 2.04e9 clocks a second.
    time = next(line for line in lines if line.startswith("  time"))
    assert time.startswith("  time   31.4 ns, limited by one multiprocessor (memory 6.83 ns, ")
    assert "all 2 launches: 62.7 ns" in lines
    assert "torch, beside: 2,048 bytes, 256 FLOPs" in lines
    assert lines[-1] == "Times are those that the model predicts for the L4."


def test_what_would_wait_for_a_gpu(capsys):
    lengths = torch.tensor([2, 3])
    with lab() as seen:
        torch.empty(int(lengths.max()), int(lengths.min())), lengths.tolist()
    assert "a GPU would be waited for: __int__, tolist" in printed(seen, capsys)


def test_faults_are_listed_up_to_a_few(capsys):
    x, out = torch.ones(2), torch.zeros(1)
    with lab() as seen:
        kernels.copy[(8,)](x, out, 64, TILE=8)
    lines = printed(seen, capsys)
    assert sum(line.startswith("  fault  ") for line in lines) == 5
    more = len(seen.launches[0].problems) - 5
    assert lines[-1] == f"  and {more} faults more"


def test_no_launch_and_no_rate(capsys):
    with lab() as seen:
        pass
    assert printed(seen, capsys, GPUS["H100"])[0] == "no kernel was launched"
    a = torch.randn(16, 16).bfloat16()
    with lab() as seen:
        kernels.matmul[(1, 1)](a, a, torch.empty(16, 16), 16, 16, 16, TM=16, TN=16, TK=16)
    with pytest.raises(NoRate, match="T4"):
        show(seen, GPUS["T4"])


def test_a_gpu_by_its_name(capsys):
    with lab() as seen:
        kernels.copy[(1,)](torch.ones(4), torch.zeros(4), 4, TILE=4)
    assert printed(seen, capsys, "H100") == printed(seen, capsys, GPUS["H100"])
    assert predict(seen.launches, "L4") == predict(seen.launches, GPUS["L4"])
    for ask in (lambda: show(seen, "H10"), lambda: predict(seen.launches, "H10")):
        with pytest.raises(ValueError, match="called 'H10'; known are A100, H100, H200, L4, T4"):
            ask()
