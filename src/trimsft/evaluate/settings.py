"""The settings of an evaluation; the defaults are the paper's protocol. `trimsft eval` is made from them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import cast

from trimsft.data.templates import check_template_name
from trimsft.errors import UsageError
from trimsft.evaluate.benchmarks import benchmark_name
from trimsft.evaluate.engines import Sampling
from trimsft.evaluate.engines.server_engine import read_address
from trimsft.grading.kinds import GRADING_KINDS, Grading, GradingKind
from trimsft.options import given_options, option, unknown_name
from trimsft.own_code import require_reference
from trimsft.runs import RunDirectory

DTYPES = ("auto", "float32", "bfloat16", "float16")
GRADERS = ("strict", "qwen")


@dataclass(frozen=True, kw_only=True)
class EvalSettings(Sampling):
    """Say which model is evaluated, on what and how; samples are drawn as `Sampling` says."""

    model: str = option(
        argument="MODEL",
        flags=("--model",),
        help="A run directory, a model folder, or a name of the hub or the server.",
    )
    benchmarks: Sequence[str] = option(
        flags=("--benchmark", "-b"),
        metavar="NAME",
        help="A benchmark: a name, or a .jsonl file of problems and answers. Repeat it for several.",
    )
    out: Path | None = option(
        None, help="The run directory to record in (default: the model's own, else runs/NAME-eval)."
    )
    engine: str = option(
        "auto",
        help="What generates the answers; auto: vllm if it is installed.",
        choices=("auto", "transformers", "vllm"),
    )
    server: str | None = option(
        None, metavar="URL", help="The address of an OpenAI-compatible server, such as http://localhost:8000."
    )
    concurrency: int = option(64, help="Requests to a server at once.", least=1)
    samples: int = option(8, help="Samples of each problem (0: the greedy answer alone).", least=0)
    temperatures: Sequence[float] = option((), help="A further temperature to draw samples at; may be repeated.")
    temperature_samples: int = option(4, help="Samples of each problem at each of the further temperatures.", least=1)
    seed: int = option(0, help="Seed of all samples.")
    limit: int | None = option(None, help="Take only this many problems, from the first on.", least=1)
    template: str = option("auto", metavar="NAME", help="How a problem becomes a prompt; auto goes by the tokenizer.")
    system_prompt: str | None = option(None, help="The system prompt in place of the template's ('' for none).")
    dtype: str = option("auto", help="The type of the weights; auto is the checkpoint's own.", choices=DTYPES)
    tokenizer: str | None = option(None, metavar="MODEL", help="A served model's tokenizer, to make prompts here.")
    grading: str | None = option(None, help="What answers are (default: boxed math).", choices=GRADING_KINDS)
    pattern: str | None = option(
        None, metavar="REGEX", help="A pattern whose one group holds the answer, such as '#### (-?[0-9.,]+)'."
    )
    grader: str = option(
        "strict",
        metavar="NAME",
        help="strict, qwen (the lenient rules behind published figures), or a function of your own: my_module:score.",
    )

    def __post_init__(self) -> None:
        """Refuse what is wrong without looking at any model."""
        super().__post_init__()
        check_template_name(self.template)
        names = [benchmark_name(name) for name in self.benchmarks]
        if not names or len({*names}) < len(names):
            raise UsageError(
                "must be one or more, each recorded under a name of its own", field="benchmarks", value=names
            )
        if ":" in self.grader:
            require_reference(self.grader, field="grader", example="my_module:score")
        elif self.grader not in GRADERS:
            raise unknown_name("grader", self.grader, (*GRADERS, "my_module:score"))
        _ = self.rows_graded
        if self.samples > 0 and self.is_greedy:
            problem = f"0 makes all {self.samples} samples of a problem the same"
            raise UsageError(problem, field="temperature", hint="set samples=0")
        drawn = [0.0, self.temperature, *self.temperatures]
        if len({*drawn}) < len(drawn) and self.temperatures:
            problem = f"must be others than 0 (greedy) and {self.temperature:g} (the samples), each once"
            raise UsageError(problem, field="temperatures", value=list(self.temperatures))
        _ = [replace(self.sampling, temperature=temperature) for temperature in self.temperatures]  # as checked there
        if self.server is not None:
            read_address(self.server)
        given = given_options(self)
        for options, is_unused, where in (
            (("grading", "pattern"), ":" in self.grader, f"with the grader {self.grader!r}"),
            (("temperature_samples",), not self.temperatures, "without further temperatures"),
            (("temperatures",), self.samples == 0, "on the greedy answer alone"),
            (("concurrency", "tokenizer"), self.server is None, "without a server"),
            (("engine", "dtype"), self.server, "on a server"),
        ):
            for name in options if is_unused else ():
                if name in given:
                    raise UsageError(f"has no effect {where}", field=name, value=given[name], hint="remove it")

    @property
    def sampling(self) -> Sampling:
        return Sampling(**{field.name: getattr(self, field.name) for field in fields(Sampling)})

    @property
    def rows_graded(self) -> Grading:
        """Return where answers stand and how they are compared."""
        kind = self.grading or ("math" if self.pattern is None else "regex")
        return Grading(cast(GradingKind, kind), pattern=self.pattern)

    @property
    def run(self) -> RunDirectory:
        """Return where it is recorded: beside the training of the model, or in a directory of its own."""
        if self.out is not None:
            return RunDirectory(self.out)
        trained = RunDirectory(self.model)
        return trained if trained.is_run() else RunDirectory(Path("runs") / f"{Path(self.model).name.lower()}-eval")
