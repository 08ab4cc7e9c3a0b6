"""The same contracts on a real GPU, at sizes with several blocks of everything.

There the tests of triton in the other files run with compiled kernels, too.
"""

from dataclasses import replace

import pytest
import torch

from benchmarks.measuring import synthetic_head
from trimsft import DFT, FSFT, SFT, AutoTrim, TrimSFT, TrimSFTEasy, TrimSFTHard, linear_cross_entropy
from trimsft.head import IGNORED
from trimsft.objectives import DEFT, RankTuner

from . import oracle
from .oracle import FUSED, Answer, Head, assert_close, call, distance, exact, make_head

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")]

SIZE = (700, 256, 9001)
OBJECTIVES = [SFT(), FSFT(), DFT(), TrimSFT(), TrimSFTEasy(), TrimSFTHard(), AutoTrim(), RankTuner(), DEFT()]


def fused(head: Head, objective, backend: str, *, factor: float = 1.0, **options) -> Answer:
    """As in the oracle, with every backend on the GPU."""
    leaves = head.to("cuda").leaves()
    return oracle.answer_of(leaves, call(leaves, objective, backend, **options), factor)


OPTIONS = [
    {"softcap": 30.0},
    {"logit_scale": 0.25},
    {"softcap": 5.0, "logit_scale": 2.0},
    {"normalizer": torch.tensor(1e4)},
]
SIZES = [(1, 16, 300), (5, 19, 2), (40, 7, 37), (33, 64, 4096), (9, 1032, 4097), (9, 64, 152064)]
CASES = [
    *((objective, SIZE, {}) for objective in OBJECTIVES),
    *((TrimSFT(bandwidth=3.0), SIZE, options) for options in OPTIONS),
    *((TrimSFTEasy(), size, {}) for size in SIZES),
]


@pytest.mark.parametrize("backend", FUSED)
@pytest.mark.parametrize("skip_below", [0, 1e-30])
@pytest.mark.parametrize(("objective", "size", "options"), CASES, ids=str)
def test_float32(objective, size, options, skip_below, backend) -> None:
    head = make_head(*size, bias=bool(options) or size != SIZE, seed=1)
    if size == SIZE:
        head.labels[::7] = IGNORED
    got = fused(head, objective, backend, skip_below=skip_below, entropy=True, **options)
    assert_close(got, exact(head, objective, **options))


@pytest.mark.parametrize("backend", FUSED)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("objective", [SFT(), TrimSFT()], ids=str)
@pytest.mark.parametrize("options", [{}, {"softcap": 30.0}], ids=str)
def test_half_precision_errs_no_more_than_torch(options, objective, dtype, backend) -> None:
    head = make_head(*SIZE, bias=bool(options), dtype=dtype, logit_size=6.0, seed=3)
    expected, torch_own = exact(head, objective, **options), oracle.plain(head.to("cuda"), objective, **options)
    got = fused(head, objective, backend, skip_below=0, entropy=True, **options)
    oracle.assert_no_worse_than_torch(got, torch_own, expected)
    if dtype == torch.bfloat16:
        assert (torch_own.tokens.gap - expected.tokens.gap).abs().max() > 0.03


@pytest.mark.parametrize("backend", FUSED)
@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
@pytest.mark.parametrize("gaps", [(-2.0, 14.0), (6.0, 9.0)], ids=["spread", "mastered"])
def test_default_skip_keeps_both_gradients(gaps, objective, backend) -> None:
    """In bfloat16: what skipping adds to the error of the same backend without it."""
    lowest, highest = gaps
    head = Head(*synthetic_head(4000, 256, 9001, lowest_gap=lowest, highest_gap=highest, dtype=torch.bfloat16))
    got, whole = fused(head, objective, backend), fused(head, objective, backend, skip_below=0)
    assert 0 < got.kept <= whole.kept == 4000
    assert distance(got.loss, whole.loss) < 1e-5
    # the two may add up in another order, each rounding to bfloat16
    assert distance(got.hidden, whole.hidden) < 4e-3
    assert distance(got.weight, whole.weight) < 4e-3
    if isinstance(objective, TrimSFT) and lowest < 0:
        assert got.kept < 2500


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_labels_on_the_gpu(dtype) -> None:
    """Ignored labels in every pattern, strided labels, and a label outside the vocabulary."""
    head = make_head(5000, 16, 100)
    head.labels[torch.rand(5000, generator=torch.Generator().manual_seed(0)) < 0.4] = IGNORED
    expected = exact(head, SFT())
    strided = torch.stack([head.labels, head.labels], dim=1).to("cuda", dtype)[:, 0]
    on_gpu = replace(head.to("cuda"), labels=strided).leaves()
    assert_close(oracle.answer_of(on_gpu, call(on_gpu, SFT(), "triton", skip_below=0)), expected)
    strided[4321] = 100
    with pytest.raises(ValueError, match=r"labels: 1 of \d+ .* first 100 at position 4321"):
        linear_cross_entropy(on_gpu.hidden, on_gpu.weight, strided, SFT())


@pytest.mark.parametrize(("backend", "share"), [("chunked", 1 / 3), ("triton", 1 / 2), ("triton low_memory", 1 / 6)])
def test_peak_memory_is_a_fraction_of_that_of_the_logits(backend, share) -> None:
    tokens, hidden_size, vocabulary = 16384, 512, 65536
    head = Head(*synthetic_head(tokens, hidden_size, vocabulary)).leaves()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call(head, TrimSFT(), backend).loss.backward()
    used = torch.cuda.max_memory_allocated() - before
    float32_logits = 4 * tokens * vocabulary
    assert used < share * float32_logits


@pytest.mark.parametrize("objective", [SFT(), TrimSFT()], ids=["sft", "trim"])
def test_a_device_in_use_holds_no_more_than_float32_sums(objective) -> None:
    tokens, hidden_size, vocabulary = 16384, 1024, 65536
    head = Head(*synthetic_head(tokens, hidden_size, vocabulary)).leaves()
    whole, used = head.leaves(), {}
    for name, in_use in (("empty", 0), ("in use", torch.cuda.get_device_properties(0).total_memory // 8)):
        others = torch.empty(in_use, dtype=torch.uint8, device="cuda")
        head.hidden.grad = head.weight.grad = None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call(head, objective, "triton").loss.backward()
        used[name] = torch.cuda.max_memory_allocated() - before
    del others
    # both gradients in float32 and rounded, a part of the logits, and 1/64 of what is there
    most = 6 * hidden_size * (tokens + vocabulary) + 2 * 4096 * 32_768 + before / 64
    assert used["in use"] < min(used["empty"], most + 2**26)
    call(whole, objective, "triton", low_memory=False).loss.backward()
    for got, expected in ((head.weight, whole.weight), (head.hidden, whole.hidden)):
        assert distance(got.grad, expected.grad) < 2 * torch.finfo(torch.bfloat16).eps
