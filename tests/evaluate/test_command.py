"""`trimsft eval` and `trimsft compare` from a list of problems to tables, with a scripted engine."""

import json
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimsft.cli import app
from trimsft.evaluate import command
from trimsft.evaluate.engines import EngineError, Request, ScriptedEngine

from .tiny_model import make_tokenizer

PROBLEMS = [{"id": f"sum-{n}", "problem": f"What is {n}+{n}?", "answer": str(2 * n)} for n in range(1, 7)]


@pytest.fixture
def benchmark(tmp_path: Path) -> Path:
    path = tmp_path / "sums.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in PROBLEMS))
    return path


def number_in(request: Request) -> int:
    text = request.prompt or request.messages[-1]["content"]
    return int(text.split("What is ")[1].split("+")[0])


def able(request: Request) -> str:
    """Right when greedy, and in three of four samples."""
    n = number_in(request)
    wrong = not request.sampling.is_greedy and request.seed % 4 == 0
    return f"It is \\boxed{{{2 * n + wrong}}}."


def hopeless(request: Request) -> str:
    return "I do not know."


@pytest.fixture
def run_eval(benchmark: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def run(name: str, answers=able, *more: str):
        monkeypatch.setattr(command, "make_engine", lambda settings: ScriptedEngine(answers))
        options = ["-b", str(benchmark), "--out", str(tmp_path / name), "--template", "plain", *more]
        return CliRunner().invoke(app, ["eval", "model", *options])

    return run


def test_from_problems_to_scores(run_eval, tmp_path: Path) -> None:
    done = run_eval("able", able, "--json")
    assert done.exit_code == 0, done.output
    (scores,) = json.loads(done.stdout)
    assert scores["greedy"]["value"] == 1.0 and scores["samples"] == 8
    folder = tmp_path / "able/eval/sums"
    samples = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    right = sum(s["text"] == f"It is \\boxed{{{2 * int(s['problem'][4:])}}}." for s in samples if s["sample"] >= 0)
    assert scores["average"]["value"] == pytest.approx(right / 48)
    grades = [json.loads(line) for line in (folder / "grades.jsonl").read_text().splitlines()]
    assert len(grades) == len(samples) == 54
    assert {grade["status"] for grade in grades} == {"correct", "wrong"}
    assert json.loads((folder / "scores.json").read_text())["grader"]["kind"] == "strict"


def test_the_table_has_greedy_beside_the_samples(run_eval) -> None:
    done = run_eval("able")
    assert done.exit_code == 0
    for name in ("average", "greedy", "pass@8", "majority@8", "no_answer", "truncated", "tokens"):
        assert name in done.stdout
    assert "What is 1+1?" in done.stderr  # the first prompt


def test_a_second_time_generates_nothing_and_other_settings_are_refused(run_eval, tmp_path: Path) -> None:
    run_eval("able")
    before = (tmp_path / "able/eval/sums/samples.jsonl").read_bytes()

    def never(request: Request) -> str:
        raise AssertionError("asked again")

    assert run_eval("able", never).exit_code == 0
    assert (tmp_path / "able/eval/sums/samples.jsonl").read_bytes() == before
    done = run_eval("able", never, "--temperature", "0.7")
    assert done.exit_code == 2 and "temperature: was 1.0, now 0.7" in done.stderr


def test_two_runs_are_compared_by_problem(run_eval, tmp_path: Path) -> None:
    run_eval("able")
    run_eval("hopeless", hopeless)
    folders = [str(tmp_path / "hopeless"), str(tmp_path / "able")]
    shown = CliRunner().invoke(app, ["compare", *folders])
    assert shown.exit_code == 0 and "difference to hopeless" in shown.stdout
    found = json.loads(CliRunner().invoke(app, ["compare", *folders, "--format", "json"]).stdout)
    assert found[0]["candidate"] == "able" and len(found[0]["better"]) == 6
    out = tmp_path / "table.tex"
    assert CliRunner().invoke(app, ["compare", *folders, "--format", "latex", "--out", str(out)]).exit_code == 0
    assert "\\toprule" in out.read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["compare", "one"], "is one run; name two or more"),
        (["compare", "one", "two"], "one: holds no evaluation"),
        (["compare", "a", "b", "--format", "word"], "must be one of terminal"),
        (
            ["eval", "m", "-b", "math500", "-b", "math500"],
            "'math500' and 'math500' would both be recorded as",
        ),
        (
            ["eval", "m", "-b", "a/x.jsonl", "-b", "b/x.jsonl"],
            "'a/x.jsonl' and 'b/x.jsonl' would both be recorded",
        ),
        (["eval", "m", "-b", "math500", "--temperature", "0"], "ask for none (--samples 0)"),
        (
            ["eval", "m", "-b", "math500", "--samples", "0", "--no-greedy"],
            "samples: must be at least 1, or 0 with",
        ),
        (["eval", "m", "-b", "math500", "--template", "qwen"], "did you mean 'qwen-boxed'?"),
        (
            ["eval", "m", "-b", "math500", "--dtype", "fp32"],
            "dtype: unknown name 'fp32'; known: auto, float32",
        ),
        (
            ["eval", "m", "-b", "math500", "--grader", "kind"],
            "grader: unknown name 'kind'; known: strict, qwen",
        ),
        (
            ["eval", "m", "-b", "math500", "--gpu-memory", "40"],
            "gpu_memory: must be above 0 and at most 1, got 40",
        ),
        (["eval", "./m", "-b", "math500", "--engine", "transformers"], "model: no such folder: './m'"),
        (["eval", "m", "-b", "math50"], "did you mean 'math500'?"),
        (["eval", "m", "-b", "math500", "--engine", "gpt"], "engine: unknown name 'gpt'"),
        (["eval", "m", "-b", "math500", "--temperature", "-1"], "temperature: must be"),
        (["eval", "m", "-b", "math500", "--samples", "x"], "must be a whole number"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    words: list[str], says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "load_benchmark", _load_nothing)
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert says in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def _load_nothing(name, data_dir, limit):
    from trimsft.evaluate.benchmarks import find_file

    find_file(name, data_dir)  # refuses unknown names
    return []


def test_greedy_alone(run_eval, tmp_path: Path) -> None:
    done = run_eval("able", able, "--samples", "0")
    assert done.exit_code == 0, done.output
    assert "greedy" in done.stdout and "average" not in done.stdout
    grown = run_eval("able", able, "--samples", "2", "--json")
    assert grown.exit_code == 0 and json.loads(grown.stdout)[0]["samples"] == 2
    assert len((tmp_path / "able/eval/sums/samples.jsonl").read_text().splitlines()) == 18
    fewer = run_eval("able", able, "--samples", "1")
    assert fewer.exit_code == 2 and "give --samples 2 and read pass@1" in fewer.stderr


def test_a_score_names_its_data(run_eval, benchmark: Path, tmp_path: Path) -> None:
    run_eval("able")
    settings = json.loads((tmp_path / "able/eval/sums/settings.json").read_text())
    assert settings["details"]["source"] == str(benchmark) and settings["problems"]["count"] == 6


def test_a_run_that_was_taught_with_another_prompt_is_told(
    benchmark: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "manifest.json").write_text("{}")
    engine = ScriptedEngine(able)
    engine.tokenizer = make_tokenizer()
    monkeypatch.setattr(command, "make_engine", lambda settings: engine)
    for template, says in (("plain", True), ("chat", False), ("auto", False)):
        (run / "config.yaml").write_text(f"objective: trim\ntemplate: {template}\n")
        done = CliRunner().invoke(app, ["eval", str(run), "-b", str(benchmark), "--samples", "1"])
        assert done.exit_code == 0, done.output
        assert "trimsft: template auto: chat, because" in done.stderr
        assert ("trained with template 'plain': --template plain asks as it was taught" in done.stderr) == says


def test_an_unfinished_run_has_no_model(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(EngineError, match="is a run without a model yet; finish its training first"):
        command.make_engine(command.EvalSettings(model=str(tmp_path), benchmarks=["math500"], engine="transformers"))


def test_interrupted_it_keeps_what_is_done_and_says_how_to_go_on(benchmark: Path, tmp_path: Path) -> None:
    code = (
        "from trimsft.cli import app; from trimsft.evaluate import command\n"
        "from trimsft.evaluate.engines import ScriptedEngine; from tests.evaluate.test_command import able\n"
        "command.make_engine = lambda settings: ScriptedEngine(able, delay=0.05)\n"
        "app()\n"
    )
    words = [
        "eval",
        "m",
        "-b",
        str(benchmark),
        "--out",
        str(tmp_path / "run"),
        "--template",
        "plain",
        "--json",
    ]
    start = partial(
        subprocess.Popen,
        [sys.executable, "-c", code, *words],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process, samples = start(), tmp_path / "run/eval/sums/samples.jsonl"
    limit = time.monotonic() + 60
    while not (samples.exists() and samples.read_bytes().count(b"\n") > 3) and time.monotonic() < limit:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert told.strip().endswith("the same command continues") and "Traceback" not in told
    done = samples.read_bytes().splitlines()
    assert 3 < len(done) < 54
    out, _ = start().communicate(timeout=60)
    assert json.loads(out)[0]["greedy"]["value"] == 1.0
    assert samples.read_bytes().splitlines()[: len(done)] == done


def test_compare_says_what_is_there_and_where_it_cannot_write(run_eval, tmp_path: Path) -> None:
    run_eval("able")
    able_run = str(tmp_path / "able")
    unknown = CliRunner().invoke(app, ["compare", able_run, able_run, "-b", "gsm8k"])
    assert unknown.exit_code == 2 and "holds no scores of 'gsm8k'; it has sums" in unknown.stderr
    (tmp_path / "file").write_text("")
    words = ["compare", able_run, able_run, "--format", "latex", "--out", str(tmp_path / "file/table.tex")]
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 2 and "out: cannot write" in refused.stderr


def test_scores_by_different_graders_are_not_mixed(run_eval, tmp_path: Path) -> None:
    run_eval("able")
    (tmp_path / "able/eval/sums").rename(tmp_path / "able/eval/other")
    run_eval("able", able, "--grader", "qwen")
    done = CliRunner().invoke(app, ["compare", str(tmp_path / "able"), str(tmp_path / "able")])
    assert done.exit_code == 2 and "was graded by qwen" in done.stderr


def test_what_the_package_offers() -> None:
    from trimsft.evaluate import grade, majority_at_k, pass_at_k

    assert grade("so \\boxed{\\frac12}", "0.5").correct
    assert pass_at_k(8, 2, 1) == 0.25
    assert majority_at_k([0, 0, 1], 3, correct={0: True, 1: False}) == 1.0


def test_a_server_that_gives_up_is_a_failure_and_no_misuse(
    benchmark: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("trimsft.evaluate.generate.time.sleep", lambda seconds: None)
    tired = ScriptedEngine(able, fails=lambda request: "the server is tired")
    monkeypatch.setattr(command, "make_engine", lambda settings: tired)
    words = ["eval", "model", "-b", str(benchmark), "--out", str(tmp_path / "run"), "--template", "plain"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    assert "samples are missing, so there is no score (last error: the server is tired)" in done.stderr
