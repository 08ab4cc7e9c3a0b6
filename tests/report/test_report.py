"""`trimsft report` and `trimsft compare`: which runs are meant, what is written, what is refused."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.evaluate.graded import score_of
from tests.report.page.pages import make_eval, make_telemetry
from tests.tokens.tiny import make_table
from trimsft import cli
from trimsft.errors import RunError, UsageError
from trimsft.grading import GRADER_VERSION
from trimsft.report import CompareSettings, ReportSettings, compare, figures, make_report
from trimsft.report.runs import Run, named_runs, read_runs
from trimsft.runs import locked


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty current directory; of figures their numbers alone, which is faster."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(figures, "PRINT_FORMATS", ())


def run(*arguments):
    return CliRunner().invoke(cli.app, list(map(str, arguments)), catch_exceptions=False)


def test_a_run_under_way_is_reported() -> None:
    """Its training has not ended, a line is half written, and of an evaluation there are samples without scores."""
    folder = make_telemetry(Path("runs/mine"), "trim", mean_token_accuracy=[0.76, 0.8])
    path = folder / "train" / "telemetry.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]) + '{"step": 3, "lo')
    Path("runs/mine/eval/lab-easy").mkdir(parents=True)
    Path("runs/mine/eval/lab-easy/samples.jsonl").write_text('{"problem": "a"}\n{"pro')
    with locked(folder / ".lock"):
        assert run("report", "runs/mine").exit_code == 0
    page = Path("runs/mine/report.html").read_text()
    assert (
        "mine would at first have written 22.0 % of its training tokens differently" in page and "Training logs" in page
    )


TEXTS = [["It", " is", " \\", "boxed", "{", "4", "}", "<eos>"], ["So", " 1", "+", "1", "=", "2", "<eos>"]]


def test_a_report_of_tables_with_a_sweep() -> None:
    make_table(Path("tokens-base.parquet"), TEXTS, prompts=("What is 2+2?",))
    make_table(Path("runs/trim/tokens.parquet"), TEXTS, shift=1.0)
    points = [{"margin": m, "bandwidth": 0.8, "value": 0.5, "low": 0.4, "high": 0.6, "seeds": 1} for m in (1, 2)]
    Path("sweep.json").write_text(json.dumps({"metric": "average@8", "benchmarks": ["amc"], "points": points}))
    words = ["--out", "out", "--title", "Two of them", "--sweep", "sweep.json", "--figures", "--json"]
    result = run("report", "Base=tokens-base.parquet", "runs/trim", *words)
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert (
        told["page"] == told["files"][0] == "out/report.html" and "Two of them" in Path("out/report.html").read_text()
    )
    assert all(Path(path).is_file() for path in told["files"]) and "out/figures/gap_distribution.csv" in told["files"]


def test_a_report_from_python_goes_into_the_run_and_says_what_cannot_be_compared() -> None:
    make_table(Path("runs/trim/tokens.parquet"), TEXTS)
    make_table(Path("tokens-other.parquet"), TEXTS[:1])
    alone = make_report(ReportSettings(runs=("runs/trim",)))
    assert alone.page == Path("runs/trim/report.html") and alone.page.is_file() and not alone.warnings
    both = make_report(ReportSettings(runs=("runs/trim", "tokens-other.parquet")))
    assert both.folder == Path("report") and both.others == () and list(Path("report").iterdir()) == [both.page]
    assert len(both.warnings) == 1 and "'trim' and 'other' are not about the same tokens" in both.warnings[0]


def test_weights_of_an_objective_of_ones_own_are_shown_where_it_is_named_and_a_run_alone_loads_no_code() -> None:
    Path("mine.py").write_text("open('loaded', 'x').close()\ndef half(tokens):\n    return tokens.gap * 0 + 0.5\n")
    make_table(Path("runs/own/tokens.parquet"), TEXTS)
    Path("runs/own/config.yaml").write_text("objective: mine:half\n")
    read = run("report", "runs/own", "--out", "out")
    assert read.exit_code == 0 and not Path("loaded").exists()
    assert "own: trained with mine:half, whose code is loaded only where --objective mine:half asks for" in read.stderr
    named = run("report", "runs/own", "--out", "out", "--objective", "mine:half", "--figures")
    assert named.exit_code == 0 and Path("loaded").exists() and "trained with" not in named.stderr
    assert "own,mine:half,0.5,1,0," in Path("out/tables/objectives.csv").read_text()
    assert '<th scope="row">half</th><td class="number">0.500</td>' in Path("out/report.html").read_text()
    Path("broken.py").write_text(
        "def logit(tokens):\n    return tokens.gold_logit\ndef gold(tokens):\n    return -tokens.position\n"
    )
    for name, why in {
        "logit": "gives tokens a weight that is not finite",
        "gold": "cannot weigh a token table (UsageError: objective: fails in line",
    }.items():
        refused = run("report", "runs/own", "--out", "other", "--objective", f"broken:{name}")
        assert refused.exit_code == 2 and why in refused.stderr and refused.stderr.count("\n") == 1
    assert not Path("other").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "must be a run directory or a token table (NAME.parquet), got 'nowhere'"),
        (["notes.txt"], "must be a run directory or a token table (NAME.parquet), got 'notes.txt'"),
        (["a.parquet", "--bandwidth", "0"], "trimsft: --bandwidth: must be above 0, got 0.0"),
        (["a.parquet", "--gamma", "-1"], "trimsft: --gamma: must be at least 0, got -1.0"),
        (["a.parquet", "--margin", "nan"], "trimsft: --margin: must be a number, got nan"),
        (["a.parquet", "--out", "b.html"], "trimsft: --out: must be a folder, got 'b.html'"),
        (["a.parquet", "--sweep", "none.json"], "none.json"),
        (["empty"], "has neither tokens.parquet nor eval/BENCHMARK/scores.json nor train/telemetry.jsonl, got 'empty'"),
        (["begun"], "has neither tokens.parquet nor eval/BENCHMARK/scores.json nor train/telemetry.jsonl, got 'begun'"),
        (["odd.parquet"], "nor eval/BENCHMARK/scores.json nor train/telemetry.jsonl, got 'odd.parquet'"),
    ],
)
def test_reports_that_cannot_be_made(arguments, message) -> None:
    make_table(Path("a.parquet"), TEXTS)
    Path("notes.txt").touch()
    for folder in ("empty", "begun/eval/amc", "odd.parquet/tokens.parquet"):
        Path(folder).mkdir(parents=True)
    Path("begun/eval/amc/samples.jsonl").touch()
    before = sorted(Path().rglob("*"))
    result = run("report", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr and result.stderr.count("\n") == 1
    assert sorted(Path().rglob("*")) == before


def test_labels() -> None:
    for name in ("runs/sft", "runs/a=b/eval/amc"):
        Path(name).mkdir(parents=True)
    for name in ("runs/sft/tokens.parquet", "tokens-base.parquet", "runs/a=b/eval/amc/scores.json"):
        Path(name).touch()
    assert named_runs(["tokens-base.parquet", "runs/sft", "X=runs/sft/tokens.parquet", "runs/a=b"]) == {
        "base": Path("tokens-base.parquet"),
        "sft": Path("runs/sft"),
        "X": Path("runs/sft/tokens.parquet"),
        "a=b": Path("runs/a=b"),
    }
    with pytest.raises(RunError, match="two are called 'sft'; tell them apart as LABEL=runs/sft/tokens"):
        named_runs(["runs/sft", "runs/sft/tokens.parquet"])


def test_a_run_is_read_as_the_files_it_has() -> None:
    make_eval(Path("run"), "amc", [1, 4])
    make_table(Path("run/tokens.parquet"), TEXTS)
    Path("run/config.yaml").write_text("objective: trim-e\n")
    Path("run/manifest.json").write_text(json.dumps({"model": {"name": "Qwen/Qwen2.5-Math-1.5B"}}))
    run = Run("mine", Path("run"))
    assert run.objective == "trim-e" and str(run.trained_from).endswith("Qwen2.5-Math-1.5B")
    assert run.interval_percent("amc", "average").value == pytest.approx(100 * 5 / 16)
    assert run.interval_percent("math500", "average") is None and len(run.table) == sum(map(len, TEXTS))
    table = Run("TrimSFT", Path("run/tokens.parquet"))
    assert (table.objective, table.scores, table.manifest, table.trained_from) == ("trim", {}, {}, "")
    assert Run("Base", Path("run/tokens.parquet")).objective is None
    Path("run/manifest.json").write_text(json.dumps({"model": "models/x"}))
    assert Run("x", Path("run")).trained_from == "models/x"
    Path("run/eval/amc/scores.json").write_text("[]")
    with pytest.raises(RunError, match=r"scores\.json: input should be an object, got \[\]; it is damaged"):
        _ = Run("x", Path("run")).scores
    with pytest.raises(RunError, match="'x' has no folder 'nowhere'"):
        read_runs({"x": Path("nowhere")})


PROTOCOL = {
    "benchmark": "amc",
    "sampling": {"temperature": 1.0, "max_tokens": 2048, "stop": []},
    "samples": 8,
    "greedy": True,
    "seed": 0,
    "prompt": {"template": "chat", "system_prompt": None, "example": "Q"},
    "engine": {"name": "vllm", "model": "a", "dtype": "bfloat16"},
    "details": {"versions": {"vllm": "1"}},
}


def evaluated(folder: str, correct: list[int], benchmark: str = "amc") -> None:
    where = Path(folder) / "eval" / benchmark
    where.mkdir(parents=True)
    record = {
        "grader": {"kind": "strict", "version": GRADER_VERSION},
        **score_of(benchmark, correct, resamples=50).as_dict(),
    }
    (where / "scores.json").write_text(json.dumps(record))
    (where / "settings.json").write_text(json.dumps(PROTOCOL))


def test_compare_shows_both_tables() -> None:
    for name, correct in (("sft", [1, 2, 3]), ("trim", [6, 7, 8]), ("b/trim", [6, 7, 8])):
        evaluated(name, correct)
    shown = run("compare", "sft", "trim")
    assert shown.exit_code == 0 and "Difference to sft" in shown.stdout and "+62.5" in shown.stdout
    text = run("compare", "sft", "trim", "--format", "markdown").stdout
    assert "| trim | amc | average (%) | 3 | 25.0 | 87.5 |" in text and "**average (%)**" in text
    (told,) = json.loads(run("compare", "sft", "trim", "--format", "json", "--metric", "pass@8").stdout)
    assert told["metric"] == "pass@8" and told["candidate"] == "trim"
    compared = compare(CompareSettings(runs=(Path("sft"), Path("trim"), Path("b/trim")), benchmark=("amc",)))
    assert [one.candidate for one in compared.comparisons] == ["trim", "b/trim"] * 2  # sampled, and greedily
    assert compared.comparisons[0].difference.value == pytest.approx(0.625)


def test_runs_are_compared_on_the_benchmarks_that_all_have() -> None:
    for name, benchmarks in (("sft", "amc gsm8k"), ("trim", "amc math500"), ("dft", "amc gsm8k"), ("other", "aime")):
        for benchmark in benchmarks.split():
            evaluated(name, [1, 2, 3], benchmark)
    compared = compare(CompareSettings(runs=(Path("sft"), Path("trim"), Path("dft"))))
    assert {one.benchmark for one in compared.comparisons} == {"amc"}
    assert list(compared.left_out) == [
        "Left out: gsm8k; no scores of trim.",
        "Left out: math500; no scores of sft and dft.",
    ]
    assert compared.left_out[0] in run("compare", "sft", "trim", "dft").stdout
    told = run("compare", "sft", "trim", "--format", "json")
    assert json.loads(told.stdout)[0]["benchmark"] == "amc"
    assert told.stderr.startswith("trimsft: Left out: gsm8k; no scores of trim.\n")
    nothing = run("compare", "sft", "other")
    assert nothing.exit_code == 2 and "share no benchmark: sft has amc, gsm8k; other has aime" in nothing.stderr


def test_a_difference_between_protocols_does_not_stand_without_a_word() -> None:
    for name, correct in (("sft", [1] * 9), ("trim", [6] * 9), ("same", [6] * 9)):
        evaluated(name, correct)
    other = PROTOCOL | {"seed": 7, "samples": 4, "engine": {"name": "server", "model": "b"}}
    other |= {
        "sampling": PROTOCOL["sampling"] | {"temperature": 0.6},
        "prompt": PROTOCOL["prompt"] | {"example": "Q" * 99},
    }
    Path("trim/eval/amc/settings.json").write_text(json.dumps(other))
    again = PROTOCOL | {"seed": 3, "engine": PROTOCOL["engine"] | {"model": "c"}, "details": {}}
    Path("same/eval/amc/settings.json").write_text(json.dumps(again))
    compared = compare(CompareSettings(runs=(Path("sft"), Path("trim"), Path("same"))))
    differing = [
        "engine.dtype not set (sft: bfloat16)",
        "engine.name server (sft: vllm)",
        "prompt.example is another text",
        "samples 4 (sft: 8)",
        "sampling.temperature 0.6 (sft: 1.0)",
    ]
    assert compared.protocol == {"trim": differing}
    for table in (compared.tables[0], compared.tables[-2]):
        assert [row[0].text for row in table.rows][-2:] == ["trim †", "same"]
        assert f"† Protocol of trim: {'; '.join(differing)}. A difference may be due to that." in table.notes
    assert json.loads(compared.render("json"))[0]["protocol"] == differing
    Path("trim/eval/amc/settings.json").unlink()
    compared = compare(CompareSettings(runs=(Path("sft"), Path("trim"))))
    assert compared.protocol == {"trim": ["not known, since settings.json is missing"]}


def test_scores_by_other_graders_are_refused() -> None:
    evaluated("sft", [1, 2, 3])
    evaluated("trim", [6, 7, 8])
    path = Path("trim/eval/amc/scores.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"grader": {"kind": "strict", "version": "1"}}))
    result = run("compare", "sft", "trim")
    assert result.exit_code == 2 and "trim was graded by strict 1, sft by strict" in result.stderr
    assert "grade again with trimsft eval, which generates nothing anew" in result.stderr


def ask(folder: str, problems: dict[str, str]) -> None:
    lines = [json.dumps({"id": name, "problem": text, "answer": "1"}) for name, text in problems.items()]
    Path(folder, "eval/amc/problems.jsonl").write_text("\n".join(lines) + "\n")


def test_other_problems_under_the_same_ids_are_refused() -> None:
    evaluated("sft", [0, 4, 8])
    evaluated("trim", [8, 4, 0])
    ask("sft", {"p000": "one", "p001": "two", "p002": "three"})
    ask("trim", {"p000": "one", "p001": "another", "p002": "three"})
    result = run("compare", "sft", "trim")
    assert result.exit_code == 2 and result.stderr.count("\n") == 1
    assert "problem 'p001' of 'amc' has another text or answer in sft than in trim" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sft"], "must be two or more, got 'sft'"),
        (["sft", "sft", "--format", "html"], "--format: unknown name 'html'"),
        (["sft", "none"], "none"),
        (["sft", "sft", "-b", "math500"], "math500"),
        (["sft", "sft", "--metric", "pass@99"], "pass@99"),
    ],
)
def test_comparisons_that_cannot_be_made(arguments, message) -> None:
    evaluated("sft", [1, 2, 3])
    result = run("compare", *arguments)
    assert (result.exit_code, result.stdout) == (2, "") and message in result.stderr
    with pytest.raises(UsageError, match="runs: must be two or more"):
        CompareSettings(runs=(Path("sft"),))
