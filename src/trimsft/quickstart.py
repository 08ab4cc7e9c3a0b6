"""The core of the method on the CPU, in seconds: one batch with wrong labels, fitted under each objective.

The rule to learn: after tokens a, b comes (a + 3b + 1) mod V. A small network first learns it from correct
labels, though not to the end. Then one batch in which some labels are wrong is fitted once per objective, each
time from that same base, through `linear_cross_entropy`. What comes back for one objective:

    {"objective": "trim", "loss": {"before": 0.22, "after": 0.0005}, "nll": {"before": 1.41, "after": 1.18},
     "weight": ..., "effective_ratio": ..., "skipped": ..., "right": ..., "wrong": ..., "unseen": ...}
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from trimsft.figures import two_token_stats, weighting_functions
from trimsft.head import LossOutput, linear_cross_entropy
from trimsft.objectives import OBJECTIVES, SFT, BuiltinObjective, make_objective
from trimsft.runs import write_whole

if TYPE_CHECKING:
    from rich.table import Table

EXAMPLE_GAPS = (-4.0, -1.0, 0.0, 1.5, 3.0, 6.0, 10.0)

CLOSING = """\
What this shows: objectives weigh the same tokens differently, and so learn different labels; tokens with next
to no gradient are skipped in the backward pass. What it does not show: anything about language models. A toy
fitted to one batch forgets the rest, and a loss of w * nll also falls when w does.

Next:  trimsft doctor          check this machine's backends against float64
       trimsft bench           time the fused head on a shape of yours (--tokens --hidden --vocabulary)
       trimsft train --help    fine-tune a model; README.md, "Training with TRL"
       README.md, "The loss in Python": put the loss into your own training loop"""


@dataclass(frozen=True, kw_only=True)
class Task:
    """Sizes of the demonstration."""

    vocabulary: int = 64
    hidden_size: int = 48
    tokens: int = 1024
    """In the batch; another as many are kept unseen."""
    wrong_share: float = 0.1
    """Share of the batch's labels that are replaced by another token."""
    base_steps: int = 150
    """AdamW steps of plain SFT on correct labels, before any objective is compared."""
    steps: int = 150
    """AdamW steps of each objective on the batch."""
    seed: int = 0


@dataclass(frozen=True)
class Change:
    """A number before the first step and after the last."""

    before: float
    after: float


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What one objective did with the batch."""

    objective: str
    loss: Change
    """sum of w * nll / number of tokens."""
    nll: Change
    """Mean over the tokens; the next likewise."""
    weight: Change
    effective_ratio: Change
    """(sum w)^2 / (N * sum w^2): 1 if all tokens count alike, 1/N if a single one counts."""
    skipped: Change
    """Share of the tokens without a backward pass."""
    right: Change
    """Share of the batch's correct labels that are the model's first choice."""
    wrong: Change
    """Share of the batch's wrong labels that are the model's first choice."""
    unseen: Change
    """Share of correct first choices on tokens outside the batch."""


@dataclass(frozen=True)
class Result:
    task: Task
    fits: list[Fit]


def run(task: Task | None = None, progress: Callable[[str], None] | None = None) -> Result:
    """Fit one batch under all six objectives; `progress` is told what begins."""
    task, progress = task or Task(), progress or (lambda _: None)
    with _repeatable(task.seed):
        progress("base model")
        base = _base_model(task)
        batch = _Batch(task)
        fits = []
        for name in OBJECTIVES:
            progress(name)
            fits.append(_fit(task, base, batch, name))
    return Result(task, fits)


def save(result: Result, folder: Path) -> list[Path]:
    """Write quickstart.json and the figure of the weights; returns the files."""
    gaps = torch.tensor(EXAMPLE_GAPS)
    weights = {name: make_objective(name).weights(two_token_stats(gaps)).tolist() for name in OBJECTIVES}
    content = {**asdict(result), "example_weights": {"gap": EXAMPLE_GAPS, **weights}}
    report = write_whole(folder / "quickstart.json", (json.dumps(content, indent=1) + "\n").encode())
    return [report, *weighting_functions(folder / "weighting_functions.svg")]


class TinyModel(nn.Module):
    """Two embedded tokens through one hidden layer, and a head."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.embedding = nn.Embedding(task.vocabulary, task.hidden_size)
        self.mlp = nn.Sequential(
            nn.Linear(2 * task.hidden_size, 4 * task.hidden_size),
            nn.GELU(),
            nn.Linear(4 * task.hidden_size, task.hidden_size),
        )
        self.lm_head = nn.Linear(task.hidden_size, task.vocabulary, bias=False)

    def forward(self, context_N2: Tensor, labels_N: Tensor, objective: BuiltinObjective) -> LossOutput:
        hidden_NH = self.mlp(self.embedding(context_N2).flatten(1))
        return linear_cross_entropy(hidden_NH, self.lm_head.weight, labels_N, objective)


class _Batch:
    """The batch that is fitted, and as many tokens that are not."""

    def __init__(self, task: Task) -> None:
        self.context_N2, correct_N = _draw(task)
        self.is_wrong_N = torch.rand(task.tokens) < task.wrong_share
        other_N = (correct_N + torch.randint(1, task.vocabulary, (task.tokens,))) % task.vocabulary
        self.labels_N = torch.where(self.is_wrong_N, other_N, correct_N)
        self.unseen = _draw(task)


def _draw(task: Task) -> tuple[Tensor, Tensor]:
    """Random pairs of tokens, and what follows each."""
    context_N2 = torch.randint(task.vocabulary, (task.tokens, 2))
    return context_N2, (context_N2[:, 0] + 3 * context_N2[:, 1] + 1) % task.vocabulary


def _base_model(task: Task) -> TinyModel:
    model = TinyModel(task)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(task.base_steps):
        _step(optimizer, model(*_draw(task), SFT()).loss)
    return model


def _fit(task: Task, base: TinyModel, batch: _Batch, name: str) -> Fit:
    model, objective = copy.deepcopy(base), make_objective(name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    before = _look(model, batch, objective)
    for _ in range(task.steps):
        _step(optimizer, model(batch.context_N2, batch.labels_N, objective).loss)
    after = _look(model, batch, objective)
    return Fit(objective=name, **{key: Change(before[key], after[key]) for key in before})


def _step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def _look(model: TinyModel, batch: _Batch, objective: BuiltinObjective) -> dict[str, float]:
    out = model(batch.context_N2, batch.labels_N, objective)
    unseen = model(*batch.unseen, objective)
    weights, is_top = out.weights, out.tokens.gap > 0
    return {
        "loss": out.loss.item(),
        "nll": out.tokens.nll.mean().item(),
        "weight": weights.mean().item(),
        "effective_ratio": (weights.sum() ** 2 / (len(weights) * weights.square().sum())).item(),
        "skipped": 1 - out.kept / len(out.tokens),
        "right": is_top[~batch.is_wrong_N].float().mean().item(),
        "wrong": is_top[batch.is_wrong_N].float().mean().item(),
        "unseen": (unseen.tokens.gap > 0).float().mean().item(),
    }


@contextmanager
def _repeatable(seed: int) -> Iterator[None]:
    """A seed of its own, and one thread: sums in one order, and matrices this small gain nothing from more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)


def opening(result: Result) -> str:
    """What was done, in words."""
    task = result.task
    return (
        f"A small network that knows {result.fits[0].unseen.before:.0%} of a rule over {task.vocabulary} tokens is "
        f"fitted to one batch of {task.tokens} tokens,\n{task.wrong_share:.0%} of them with a wrong label: "
        f"{task.steps} AdamW steps under each objective, from the same start.\n"
    )


def tables(result: Result) -> list[Table]:
    """What the fits did, what was learned, and the weight of example gaps, for a terminal of 80 columns."""
    from rich import box
    from rich.table import Table

    def table(title: str, *columns: str) -> Table:
        made = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
        made.add_column("objective", no_wrap=True)
        for column in columns:
            made.add_column(column, justify="right")
        return made

    training = table("Before -> after", "loss", "mean nll", "mean weight", "effective ratio")
    learning = table(
        "After", "tokens\nskipped", "right labels\nlearned", "wrong labels\nlearned", "unseen tokens\nright"
    )
    for fit in result.fits:
        cells = (fit.loss, ".3f"), (fit.nll, ".2f"), (fit.weight, ".3f"), (fit.effective_ratio, ".3f")
        training.add_row(fit.objective, *(f"{x.before:{how}} -> {x.after:{how}}" for x, how in cells))
        shares = (fit.skipped, fit.right, fit.wrong, fit.unseen)
        learning.add_row(fit.objective, *(f"{share.after:.0%}" for share in shares))
    base = result.fits[0]
    learning.add_section()
    learning.add_row("the base", "", *(f"{x.before:.0%}" for x in (base.right, base.wrong, base.unseen)))
    weights = table("Weight of a token by its logit gap", *(f"{gap:g}" for gap in EXAMPLE_GAPS))
    weights.caption = "(fsft and dft look at p; here p = sigmoid(gap))"
    for name in OBJECTIVES:
        values = make_objective(name).weights(two_token_stats(torch.tensor(EXAMPLE_GAPS)))
        weights.add_row(name, *(f"{value:.3f}" for value in values.tolist()))
    return [training, learning, weights]
