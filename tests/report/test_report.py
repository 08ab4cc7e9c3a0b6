"""`trimsft report` and `trimsft compare`: which runs are meant, what is written, what is refused."""

import csv
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.evaluate.graded import score_of
from tests.report.page.pages import make_eval, make_telemetry
from tests.tokens.tiny import make_table
from trimsft import cli
from trimsft.grading import GRADER_VERSION
from trimsft.report import CompareSettings, ReportSettings, compare, figures, make_report
from trimsft.report.run_tables import write_analysis
from trimsft.report.runs import read_runs
from trimsft.runs import locked
from trimsft.tokens.table import read_token_table

TEXTS = [["It", " is", " \\", "boxed", "{", "4", "}", "<eos>"], ["So", " 1", "+", "1", "=", "2", "<eos>"]]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty current directory; of figures their numbers alone, which is faster."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(figures, "PRINT_FORMATS", ())


def run(*arguments):
    return CliRunner().invoke(cli.app, list(map(str, arguments)), catch_exceptions=False)


def refused(*arguments) -> str:
    """The one line that a command ends with."""
    result = run(*arguments)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    return result.stderr


# ---- reports


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
    assert "mine would at first have written 22.0 % of its training tokens differently" in page
    assert "Training logs" in page


def test_where_a_report_goes() -> None:
    make_table(Path("runs/trim/tokens.parquet"), TEXTS)
    make_table(Path("tokens-other.parquet"), TEXTS[:1])
    alone = make_report(ReportSettings(runs=("runs/trim",)))
    assert alone.page == Path("runs/trim/report.html") and alone.page.is_file() and not alone.warnings
    both = make_report(ReportSettings(runs=("runs/trim", "tokens-other.parquet")))
    assert both.folder == Path("report") and both.others == () and list(Path("report").iterdir()) == [both.page]
    assert len(both.warnings) == 1 and "'trim' and 'other' are not about the same tokens" in both.warnings[0]
    words = ["--out", "out", "--title", "Two of them", "--figures", "--json"]
    files = json.loads(run("report", "Base=tokens-other.parquet", "runs/trim", *words).stdout)["files"]
    assert files[0] == "out/report.html" and "Two of them" in Path("out/report.html").read_text()
    assert all(Path(path).is_file() for path in files) and "out/figures/gap_distribution.csv" in files


def test_tables_and_figures() -> None:
    runs = {"Base": Path("base"), "SFT": Path("sft"), "TrimSFT": Path("trim")}
    for shift, folder in enumerate(runs.values()):
        make_table(folder / "tokens.parquet", TEXTS, shift=float(shift))
        make_eval(folder, "amc", [1, 4, 8])
    files = write_analysis(Path("out"), read_runs(runs))
    assert sorted(files) == sorted(path for path in Path("out").rglob("*") if path.is_file())
    assert {path.name for path in files if path.suffix == ".csv"} == {
        *("confidence.csv", "objectives.csv"),
        *("gap_distribution.csv", "sampling.csv"),
    }
    gap = read_token_table(Path("base/tokens.parquet"))["gap"].astype(float)
    with Path("out/tables/confidence.csv").open() as file:
        row = next(csv.DictReader(file))
    assert float(row["median gap"]) == pytest.approx(np.median(gap), abs=1e-4) and int(row["tokens"]) == 15
    with Path("out/figures/sampling.csv").open() as file:
        scored = [row["value"] for row in csv.DictReader(file) if row["metric"] == "average@8, %"]
    assert scored == ["54.1667"] * 3


def test_own_objectives_are_loaded_where_named() -> None:
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
    code = "def logit(tokens):\n    return tokens.gold_logit\ndef gold(tokens):\n    return -tokens.position\n"
    Path("broken.py").write_text(code)
    for name, why in {
        "logit": "gives tokens a weight that is not finite",
        "gold": "cannot weigh a token table (UsageError: objective: fails in line",
    }.items():
        assert why in refused("report", "runs/own", "--out", "other", "--objective", f"broken:{name}")
    assert not Path("other").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.parquet", "--bandwidth", "0"], "trimsft: --bandwidth: must be above 0, got 0.0"),
        (["a.parquet", "--out", "b.html"], "trimsft: --out: must be a folder, got 'b.html'"),
        (["begun"], "has neither tokens.parquet nor eval/BENCHMARK/scores.json nor train/telemetry.jsonl, got 'begun'"),
    ],
)
def test_reports_that_cannot_be_made(arguments, message) -> None:
    make_table(Path("a.parquet"), TEXTS)
    Path("begun/eval/amc").mkdir(parents=True)
    before = sorted(Path().rglob("*"))
    assert message in refused("report", *arguments) and sorted(Path().rglob("*")) == before


# ---- comparisons

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


def evaluated(folder: str, correct: list[int], benchmark: str = "amc", **asked: str) -> Path:
    """A run with scores; `asked` are the texts of its problems by id."""
    where = Path(folder) / "eval" / benchmark
    where.mkdir(parents=True)
    grader = f"strict {GRADER_VERSION}"
    record = {"grader": grader, **asdict(score_of(benchmark, correct, resamples=50))}
    (where / "scores.json").write_text(json.dumps(record))
    (where / "settings.json").write_text(json.dumps(PROTOCOL))
    if asked:
        lines = [json.dumps({"id": name, "problem": text, "answer": "1"}) + "\n" for name, text in asked.items()]
        (where / "problems.jsonl").write_text("".join(lines))
    return where


def test_compare_shows_both_tables() -> None:
    for name, correct in (("sft", [1, 2, 3]), ("trim", [6, 7, 8]), ("b/trim", [6, 7, 8])):
        evaluated(name, correct)
    shown = run("compare", "sft", "trim")
    assert shown.exit_code == 0 and "Difference to sft" in shown.stdout and "+62.5" in shown.stdout
    text = run("compare", "sft", "trim", "--format", "markdown").stdout
    assert "| trim | amc | average (%) | 3 | 25.0 | 87.5 |" in text and "**average (%)**" in text
    compared = compare(CompareSettings(runs=(Path("sft"), Path("trim"), Path("b/trim")), benchmark=("amc",)))
    assert [one.candidate for one in compared.comparisons] == ["trim", "b/trim"] * 2  # sampled, and greedily
    assert compared.comparisons[0].difference.value == pytest.approx(0.625)


def test_common_benchmarks_are_compared() -> None:
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
    assert "share no benchmark: sft has amc, gsm8k; other has aime" in refused("compare", "sft", "other")


def test_differences_of_protocol_are_marked() -> None:
    folders = [evaluated(name, correct) for name, correct in (("sft", [1] * 9), ("trim", [6] * 9), ("same", [6] * 9))]
    other = PROTOCOL | {"seed": 7, "samples": 4, "engine": {"name": "server", "model": "b"}}
    other["sampling"] = PROTOCOL["sampling"] | {"temperature": 0.6}
    other["prompt"] = PROTOCOL["prompt"] | {"example": "Q" * 99}
    (folders[1] / "settings.json").write_text(json.dumps(other))
    again = PROTOCOL | {"seed": 3, "engine": PROTOCOL["engine"] | {"model": "c"}, "details": {}}
    (folders[2] / "settings.json").write_text(json.dumps(again))
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


def test_comparisons_that_cannot_be_made() -> None:
    evaluated("sft", [1, 2, 3], p000="one", p001="two")
    evaluated("trim", [6, 7, 8], p000="one", p001="another")
    graded = evaluated("graded", [6, 7, 8]) / "scores.json"
    graded.write_text(json.dumps(json.loads(graded.read_text()) | {"grader": "strict 1"}))
    for arguments, message in {
        "sft": "must be two or more, got 'sft'",
        "sft sft --format html": "--format: unknown name 'html'",
        "sft sft --metric pass@99": "pass@99",
        "sft graded": "graded was graded by strict 1, sft by strict",
        "sft trim": "problem 'p001' of 'amc' has another text or answer in sft than in trim",
    }.items():
        assert message in refused("compare", *arguments.split())
