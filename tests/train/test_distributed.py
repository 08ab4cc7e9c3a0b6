"""Several processes train as one does: DDP and FSDP2 on gloo, with ranks that have nothing to train on or to keep.

In every 8 rows of `distributed_worker`, rank 0 has the first four and rank 1 the others. One process that takes the
same pieces one after the other must arrive at the same weights.
"""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.train.distributed_worker import STEPS, Case, make_model, train, train_all
from tests.train.processes import QUIET, Child, free_port, two_ranks
from tests.train.tiny_run import as_words, make_fields
from trimsft.train.telemetry import QUANTILES

Weights = dict[str, torch.Tensor]

EPSILON = torch.finfo(torch.float32).eps / 2
# a logit of 34 is known to 4e-6 in float32, and w = exp(-(gap - m)^2 / (2 tau^2)) multiplies that by up to 15
LOSS_ERROR = 1e-4
GAP_ERROR = 1e-4  # the same for a gap, the difference of two logits, after some steps
BIN = 0.05  # a token at the edge of a bin may fall to either side
ADAM = (("optim", "adamw_torch"), ("learning_rate", 1e-3), ("max_grad_norm", 0.02))
RECOMPUTED = (("gradient_checkpointing", True),)
# DDP then waits for every gradient: a rank with nothing to train on must have some
AUTO = (("objective", "auto-trim"),)
EXACT = (("skip_below", 0.0),)
FREE = (("padding_free", True), ("max_length", None))
ALL_USED = (*EXACT, ("ddp_find_unused_parameters", False))

CASES = {
    "ddp": Case(micro_batch=4),
    "ddp, accumulated": Case(micro_batch=2, accumulation=2, settings=ALL_USED),
    "ddp, adam and clipping": Case(micro_batch=4, settings=ADAM),
    "ddp, auto-trim": Case(micro_batch=2, accumulation=2, settings=AUTO),
    "fsdp2": Case(micro_batch=4, fsdp=True),
    "fsdp2, untied, recomputed": Case(micro_batch=4, fsdp=True, tied=False, settings=RECOMPUTED),
    "fsdp2, adam and clipping": Case(micro_batch=4, fsdp=True, settings=ADAM),
    "fsdp2, padding-free": Case(micro_batch=4, fsdp=True, settings=FREE),
}
SHARDED = (("fsdp_config", {"version": 2, "state_dict_type": "SHARDED_STATE_DICT"}),)
OTHERS = {
    "ddp, padding-free": Case(micro_batch=4, settings=FREE),
    "fsdp2, adam and clipping, resumed": Case(micro_batch=4, fsdp=True, settings=ADAM + SHARDED, resumes=True),
}


@dataclass(frozen=True)
class Trained:
    folder: Path
    weights: Weights
    logs: list[dict[str, float]]
    kept: list[list[list[int]]]
    """How many tokens each rank and micro-batch trained, and how many of them it kept."""
    is_sharded: bool
    evaluated: dict[str, float]

    @classmethod
    def read(cls, folder: Path, case: Case, processes: int) -> "Trained":
        facts = [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(processes)]
        weights = load_file(folder / "model" / "model.safetensors")
        if case.tied and "lm_head.weight" in weights:  # a gathered state names it twice
            assert torch.equal(weights.pop("lm_head.weight"), weights["model.embed_tokens.weight"])
        kept = [rank["kept"] for rank in facts]
        is_sharded, evaluated = all(rank["is_sharded"] for rank in facts), facts[0]["evaluated"]
        return cls(folder, weights, facts[0]["logs"], kept, is_sharded, evaluated)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    """Every case on two ranks, by one pair of processes."""
    folder, cases = tmp_path_factory.mktemp("two"), CASES | OTHERS
    for process in two_ranks(lambda log, **ranks: Child(train_all, cases, folder, log=log, **ranks), folder):
        errors = "".join(path.read_text()[-2000:] for path in folder.rglob("err-*"))
        assert process.code == 0, process.err[-4000:] + errors
    return {name: Trained.read(folder / name, case, 2) for name, case in cases.items()}


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], Trained]:
    """Trains each case once, in this process."""

    @functools.cache
    def train_once(case: Case) -> Trained:
        folder = tmp_path_factory.mktemp("one")
        train(case, folder)
        return Trained.read(folder, case, 1)

    return train_once


def distance(one: Weights, other: Weights) -> float:
    assert one.keys() == other.keys()
    return sum(float((one[name].double() - other[name].double()).square().sum()) for name in one) ** 0.5


def movement(weights: Weights, *, tied: bool) -> float:
    begin = make_model(tied=tied).state_dict()
    return distance(weights, {name: begin[name] for name in weights})


def rounding(weights: Weights) -> float:
    """How far apart two runs may be by rounding: a random walk of half a unit a step."""
    return EPSILON * STEPS**0.5 * sum(float(w.double().square().sum()) for w in weights.values()) ** 0.5


def assert_same_training(got: Trained, expected: Trained) -> None:
    """Weights, losses and every figure of the telemetry."""
    assert distance(got.weights, expected.weights) < rounding(expected.weights)
    assert len(got.logs) == len(expected.logs) == STEPS
    for log, other in zip(got.logs, expected.logs, strict=True):
        assert log.keys() == other.keys()
        for name in log.keys() - {"tokens_per_second"}:
            tolerance = {"abs": BIN + GAP_ERROR} if name in QUANTILES else {"rel": LOSS_ERROR, "abs": 1e-7}
            assert log[name] == pytest.approx(other[name], **tolerance), (other["step"], name)
        for name in ("num_tokens", "trained_tokens"):
            assert log[name] == other[name]


@pytest.mark.parametrize("name", CASES)
def test_two_ranks_train_as_one_process_with_the_same_pieces(name, two, one) -> None:
    case = CASES[name]
    settings = case.settings if case.settings in (ADAM, AUTO) else EXACT if case.settings == ALL_USED else ()
    pieces = Case(tied=case.tied, micro_batch=case.micro_batch, accumulation=2 * case.accumulation, settings=settings)
    expected = one(pieces)
    assert two[name].is_sharded == case.fsdp
    assert movement(expected.weights, tied=case.tied) > 100 * rounding(expected.weights)
    assert_same_training(two[name], expected)


@pytest.mark.parametrize("name", ["ddp", "fsdp2"])
def test_a_rank_may_have_nothing_to_train_on_or_to_keep(name, two) -> None:
    first, second = two[name].kept
    assert first[1] == [0, 0] and second[1][1] > 0  # no token
    assert second[3][0] > 0 and second[3][1] == 0 and first[3][1] > 0  # no weight
    # the lengths are very uneven: that is what a mean of means would get wrong
    assert any(a[0] > 5 * b[0] > 0 for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("name", ["ddp", "fsdp2", "ddp, padding-free"])
def test_an_evaluation_counts_every_row_once(name, two, one) -> None:
    got, expected = two[name].evaluated, one(Case(micro_batch=4, accumulation=2)).evaluated
    assert got["eval_trained_tokens"] == expected["eval_trained_tokens"]
    for figure in ("nll", "weighted_loss", "mean_weight", "mean_token_accuracy"):
        assert got[f"eval_{figure}"] == pytest.approx(expected[f"eval_{figure}"], rel=LOSS_ERROR), figure


def test_fsdp2_resumes_bit_for_bit(two) -> None:
    """From whole tensors, whatever the settings say: torch reads shards as pickles that may run code."""
    whole, again = two["fsdp2, adam and clipping"], two["fsdp2, adam and clipping, resumed"]
    saved = {path.name for path in (again.folder / "train" / f"checkpoint-{STEPS}").iterdir()}
    assert {"optimizer.bin", "pytorch_model_fsdp.bin"} <= saved
    assert [log["step"] for log in again.logs] == list(range(1, STEPS + 1))
    assert not (again.folder / "mark").exists()
    assert len(again.kept[0]) == STEPS // 2  # only the second half was trained again
    for name, weight in again.weights.items():
        assert torch.equal(weight, whole.weights[name]), name
    assert again.logs[-1]["num_tokens"] == whole.logs[-1]["num_tokens"]


# --multi_gpu means several processes; with --cpu, accelerate starts one unless there is mpirun
LAUNCHERS = {
    "accelerate": ["accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--main_process_port"],
    "torchrun": ["torch.distributed.run", "--nproc_per_node", "2", "--master_port"],
}


@pytest.mark.parametrize("launcher", [pytest.param("accelerate", marks=pytest.mark.soak), "torchrun"])
def test_the_command_runs_under_a_launcher(launcher, tmp_path) -> None:
    """Without a GPU no flag is needed to say so."""
    run = tmp_path / "run"
    fields = make_fields(tmp_path, output_dir=run, max_steps=2, save_strategy="no")
    del fields["use_cpu"]
    words = as_words(fields)
    command = [sys.executable, "-m", *LAUNCHERS[launcher], str(free_port()), "-m", "trimsft", "train", *words]
    source = Path(__file__).parents[2] / "src"
    environment = os.environ | QUIET | {"PYTHONPATH": str(source), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("step 2/2") == 1  # rank 0 speaks for all
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["processes"] == 2 and manifest["train"]["steps"] == 2 and manifest["finished"]
    assert sorted(path.name for path in run.iterdir()) == [".lock", "config.yaml", "manifest.json", "model", "train"]
