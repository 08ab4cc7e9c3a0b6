"""From problems to scores with a scripted engine: what is written, goes on, is refused and printed."""

import json
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.processes import finish, start, wait_for
from trimsft import evaluate_model
from trimsft.cli import app
from trimsft.errors import RunError, UsageError
from trimsft.evaluate import EvalSettings, Evaluated, evaluate, run
from trimsft.evaluate.benchmarks import load_benchmark
from trimsft.evaluate.engines import EngineError, Request
from trimsft.evaluate.run import Evaluation
from trimsft.evaluate.scores import best_temperature, load_run
from trimsft.report import CompareSettings, compare

from .scripted import ScriptedEngine
from .test_benchmarks import CHOICE, MATH, write
from .test_server_engine import StandIn, serve
from .tiny_model import CHAT, make_tokenizer

__all__ = ["serve"]

PROBLEMS = [{"id": f"sum-{n}", "problem": f"What is {n}+{n}?", "answer": str(2 * n)} for n in range(1, 7)]


@pytest.fixture
def benchmark(tmp_path: Path) -> Path:
    return write(tmp_path / "sums.jsonl", *PROBLEMS)


def able(request: Request) -> str:
    """Right when greedy, and in three of four samples."""
    text = request.prompt or (request.messages or ())[-1]["content"]
    wrong = not request.sampling.is_greedy and request.seed % 4 == 0
    return f"It is \\boxed{{{2 * int(text.split('What is ')[1].split('+')[0]) + wrong}}}."


@pytest.fixture
def run_eval(benchmark: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Evaluated]:
    def evaluate_with(answers: Callable[[Request], str] = able, **options: Any) -> Evaluated:
        engine = answers if isinstance(answers, ScriptedEngine) else ScriptedEngine(answers)
        monkeypatch.setattr(run, "make_engine", lambda settings: engine)
        given = {"model": "m", "benchmarks": [str(benchmark)], "out": tmp_path / "run", "template": "plain"}
        return evaluate(EvalSettings(**given | options))

    return evaluate_with


def samples_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "eval/sums/samples.jsonl").read_text().splitlines()]


def test_from_problems_to_scores(run_eval: Callable[..., Evaluated], benchmark: Path, tmp_path: Path) -> None:
    evaluated = run_eval()
    assert evaluated.run.path == tmp_path / "run"
    (scores,) = json.loads(json.dumps(evaluated.as_json()))
    assert scores["metrics"]["greedy"]["value"] == 1.0 and scores["samples"] == 8 and "per_problem" not in scores
    samples, folder = samples_of(tmp_path / "run"), tmp_path / "run/eval/sums"
    right = sum(s["text"] == f"It is \\boxed{{{2 * int(s['problem'][4:])}}}." for s in samples if s["sample"] >= 0)
    assert scores["metrics"]["average"]["value"] == pytest.approx(right / 48)
    grades = [json.loads(line) for line in (folder / "grades.jsonl").read_text().splitlines()]
    assert len(grades) == len(samples) == 54
    assert {grade["status"] for grade in grades} == {"correct", "wrong"}
    assert json.loads((folder / "settings.json").read_text())["problems"]["count"] == 6
    assert load_run(tmp_path / "run") == list(evaluated.scores)


def test_greedy_alone_may_grow_into_samples(run_eval: Callable[..., Evaluated], tmp_path: Path) -> None:
    (greedy,) = run_eval(samples=0, grader="qwen").scores
    assert (
        greedy.grader.startswith("qwen ")
        and greedy.samples == 0
        and greedy.average is None
        and greedy.greedy is not None
    )
    (grown,) = run_eval(samples=2).scores
    (part,) = run_eval(samples=1).scores
    assert (grown.samples, part.samples) == (2, 1) and len(samples_of(tmp_path / "run")) == 18
    with pytest.raises(RunError, match=r"sampling\.temperature: was 1\.0, now 0\.7; seed: was 0, now 3"):
        run_eval(samples=2, temperature=0.7, seed=3)


def test_the_command_ends_cleanly_on_ctrl_c(benchmark: Path, tmp_path: Path) -> None:
    """Also where SIGINT was inherited as ignored, as by a process in the background."""
    samples = tmp_path / "run/eval/sums/samples.jsonl"
    words = ["eval", "m", "-b", str(benchmark), "--out", str(tmp_path / "run"), "--template", "plain"]
    inherited = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = start("tests.evaluate.scripted", *words)
    finally:
        signal.signal(signal.SIGINT, inherited)
    wait_for(process, lambda: samples.exists() and samples.read_bytes().count(b"\n") > 3)
    process.send_signal(signal.SIGINT)
    code, _, said = finish(process)
    assert code == 130 and "Traceback" not in said and "rerun the command to resume" in said.splitlines()[-1]
    assert 3 < samples.read_bytes().count(b"\n") < 54


# ---- nothing more is done than is new, and what is refused leaves nothing behind

KNOWN = {"model": "m"}  # what a model of the hub is known by


class Refusing(ScriptedEngine):
    """An engine that finds the answers asked for too long."""

    def check(self, requests: Any) -> None:
        if any(request.sampling.max_tokens > 100 for request in requests):
            raise EngineError("too long", field="max_tokens", hint="use at most 100")


def test_other_texts_under_a_known_id_are_refused(
    recorded: Evaluated, run_eval: Callable[..., Evaluated], benchmark: Path, tmp_path: Path
) -> None:
    rows, engine = [dict(row) for row in PROBLEMS], ScriptedEngine(able, identity=KNOWN)
    rows[1]["answer"] = "5"  # a corrected gold changes the scores, and no text
    write(benchmark, *rows)
    (score,) = run_eval(engine).scores
    assert engine.requests == [] and score.greedy is not None and score.greedy.value == 5 / 6
    rows[1]["problem"] = "What is 3+3?"
    write(benchmark, *rows)
    before = (tmp_path / "run/eval/sums/samples.jsonl").read_bytes()
    with pytest.raises(RunError, match="of 'sum-2' answers another prompt"):
        run_eval(engine)
    with pytest.raises(RunError, match=r"engine\.model: was 'm', now 'another'"):
        run_eval(ScriptedEngine(able, identity={"model": "another"}), model="another")
    assert (tmp_path / "run/eval/sums/samples.jsonl").read_bytes() == before


def test_a_refusal_leaves_nothing_behind(run_eval: Callable[..., Evaluated], benchmark: Path, tmp_path: Path) -> None:
    other = benchmark.with_name("other.jsonl")
    other.write_text(benchmark.read_text().replace("What is 3+3", "What is " + "3" * 200 + "+3"))
    with pytest.raises(EngineError, match="max_tokens: too long; use at most 100"):
        run_eval(Refusing(able), benchmarks=[str(benchmark), str(other)])
    assert not (tmp_path / "run").exists()
    assert run_eval(Refusing(able), max_tokens=100).scores[0].greedy.value == 1.0


@pytest.fixture
def recorded(run_eval: Callable[..., Evaluated]) -> Evaluated:
    return run_eval(ScriptedEngine(able, identity=KNOWN))


def asks_nothing(settings: EvalSettings) -> Any:
    raise AssertionError("no engine is needed")


def test_a_complete_record_is_graded_again_without_an_engine(
    recorded: Evaluated, benchmark: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run, "make_engine", asks_nothing)
    asked: dict[str, Any] = {"out": tmp_path / "run", "template": "plain"}
    again = evaluate_model("m", str(benchmark), grader="qwen", **asked)
    assert again.scores[0].metrics == recorded.scores[0].metrics and again.scores[0].grader.startswith("qwen ")
    for other in ({"samples": 9}, {"limit": 6, "engine": "vllm"}, {"dtype": "float16"}):
        with pytest.raises(AssertionError, match="no engine is needed"):
            evaluate_model("m", str(benchmark), **asked | other)
    with pytest.raises(AssertionError, match="no engine is needed"):
        evaluate_model("another", str(benchmark), **asked)
    with pytest.raises(RunError, match=r"seed: was 0, now 3"):  # said before a model is loaded
        evaluate_model("m", str(benchmark), seed=3, **asked)


def test_a_second_call_writes_the_same_and_grades_other_texts_anew(
    recorded: Evaluated, run_eval: Callable[..., Evaluated], tmp_path: Path
) -> None:
    folder, engine = tmp_path / "run/eval/sums", ScriptedEngine(able, identity=KNOWN)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / "scores.json").write_text("{}")
    assert run_eval(engine).scores == recorded.scores and engine.requests == []
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files
    samples = (folder / "samples.jsonl").read_text()
    (folder / "samples.jsonl").write_text(samples.replace("boxed{2}", "boxed{3}"))
    assert run_eval(engine).scores != recorded.scores


# ---- what else is asked


def test_a_served_model_is_asked_as_other_engines_ask_it(
    serve: Callable[..., StandIn], benchmark: Path, tmp_path: Path
) -> None:
    chat = "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}" + CHAT
    make_tokenizer(chat, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]).save_pretrained(tmp_path / "qwen")
    server = serve(models=("m", str(tmp_path / "qwen")))
    for model, tokenizer, template in (
        ("m", None, "chat"),
        ("m", str(tmp_path / "qwen"), "qwen-boxed"),
        (str(tmp_path / "qwen"), None, "qwen-boxed"),
    ):
        asked = EvalSettings(model=model, benchmarks=[str(benchmark)], server=server.address, tokenizer=tokenizer)
        evaluation = Evaluation("sums", load_benchmark(benchmark), asked)
        assert evaluation.with_prompts(run.make_engine(asked).tokenizer).prompts.template == template


# ---- the command, and its settings


def test_tables_json_and_comparisons(benchmark: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs = {"hopeless": lambda request: "I do not know.", "able": able}
    for name, script in runs.items():
        monkeypatch.setattr(run, "make_engine", lambda settings, script=script: ScriptedEngine(script))
        words = ["eval", "m", "-b", str(benchmark), "--out", str(tmp_path / name), "--template", "plain"]
        shown = CliRunner().invoke(app, words)
        assert shown.exit_code == 0, shown.output
        assert "What is 1+1?" in shown.stderr and "recorded in" in shown.stderr
        first, *_, last = (line for line in shown.stderr.splitlines() if " of 54 samples" in line)
        note = "sums: 100% of the answers have no box and count as wrong; --pattern finds them elsewhere"
        assert (note in " ".join(shown.stdout.split())) == (name == "hopeless")
        assert "0 of 54 samples, at most 110,592 tokens" in first and "54 of 54 samples, " in last
    (scores,) = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert scores["metrics"]["greedy"]["value"] == 1.0
    both = ["compare", *(str(tmp_path / name) for name in runs)]
    assert "Difference to hopeless" in CliRunner().invoke(app, both).stdout
    found, greedy = json.loads(CliRunner().invoke(app, [*both, "--format", "json"]).stdout)
    assert found["candidate"] == "able" and len(found["better"]) == 6 and greedy["metric"] == "greedy"
    hot = "--temperatures 0.6 --temperatures 0.3 --temperature-samples 2"
    grown = CliRunner().invoke(app, [*words, *hot.split()])
    assert grown.exit_code == 0 and "T=0.3" in grown.stdout and "78 of 78 samples" in grown.stderr


def settings(**changes: Any) -> EvalSettings:
    return EvalSettings(**{"model": "m", "benchmarks": ("math500",)} | changes)


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"benchmarks": ("a/x.jsonl", "b/x.jsonl.gz")}, "benchmarks", "each recorded under a name of its own"),
        ({"temperature": 0}, "temperature", "makes all 8 samples of a problem the same; set samples=0"),
        ({"temperature": 1e-40}, "temperature", "must be 0 (greedy), or at least 0.0001"),
        ({"temperatures": (1.0,)}, "temperatures", "must be others than 0 (greedy) and 1"),
        ({"temperatures": (0.5,), "samples": 0}, "temperatures", "has no effect on the greedy answer alone"),
        ({"grader": "mine:score", "pattern": "(a)"}, "pattern", "has no effect with the grader"),
        ({"server": "http://localhost:8000", "dtype": "float16"}, "dtype", "has no effect on a server"),
        ({"grader": "quen"}, "grader", "unknown name 'quen'; did you mean 'qwen'?"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        settings(**changes)
    assert refused.value.field == field and says in str(refused.value)


# ---- other answers than boxed mathematics

GSM8K = "#### (-?[0-9.,]+)"


@pytest.mark.parametrize(
    ("options", "row", "answer", "says"),
    [
        ({"grading": "choice"}, CHOICE, "The answer is (B).", "(choice)"),
        ({"grading": "exact"}, {"problem": "Capital?", "answer": "Paris"}, "Paris", "(exact)"),
        ({"pattern": GSM8K}, {"problem": "3+3?", "answer": 6}, "So\n#### 6", f"regex {GSM8K!r}"),
        ({}, {"problem": "A root?", "answer": ["2", "3"]}, r"\boxed{3}", ""),
    ],
)
def test_how_answers_are_graded_is_said_once(
    run_eval: Callable[..., Evaluated],
    tmp_path: Path,
    options: dict[str, str],
    row: dict[str, Any],
    answer: str,
    says: str,
) -> None:
    prompts = []

    def keep(request: Request) -> str:
        prompts.append(request.prompt)
        return answer if request.sampling.is_greedy else "none"

    path = write(tmp_path / "mine.jsonl", row)
    (score,) = run_eval(keep, benchmarks=[str(path)], **options).scores
    assert score.greedy is not None and score.greedy.value == 1 and score.average.value == 0
    assert all(("A. 3\nB. 4\n" in prompt) == (row is CHOICE) for prompt in prompts)
    assert says in score.grader


@pytest.fixture
def scorer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scorer_here.py").write_text("def score(response, gold): return gold in response, response[:1]\n")
    yield tmp_path / "scorer_here.py"
    sys.modules.pop("scorer_here", None)


def test_the_code_of_a_scorer_is_its_version(run_eval: Callable[..., Evaluated], scorer: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "mine.jsonl", {"problem": "Capital?", "answer": "Paris"}, MATH | {"answer": "B"})
    own: dict[str, Any] = {"benchmarks": [str(path)], "grader": "scorer_here:score"}
    (score,) = run_eval(lambda request: "Paris or B", **own).scores
    assert score.grader.startswith("scorer_here:score ")
    grades = (tmp_path / "run/eval/mine/grades.jsonl").read_text().splitlines()
    assert score.interval("average").value == 1 and json.loads(grades[0])["answer"] == "P"
    shutil.copytree(tmp_path / "run", tmp_path / "before")
    scorer.write_text("def score(response, gold): return False\n")
    sys.modules.pop("scorer_here")
    (changed,) = run_eval(**own).scores
    assert changed.interval("average").value == 0
    with pytest.raises(RunError, match=r"run was graded by scorer_here:score .*, before by scorer_here:score "):
        compare(CompareSettings(runs=(tmp_path / "before", tmp_path / "run")))


# ---- over the temperature


def cools(request: Request) -> str:
    """Right more often the lower the temperature is, and wrong when greedy."""
    known = request.sampling.temperature < 0.5 or request.seed % 3 == 0
    right = known and not request.sampling.is_greedy
    return f"\\boxed{{{2 * int(request.prompt.split('What is ')[1].split('+')[0]) + (not right)}}}"


@pytest.fixture
def run_at(run_eval: Callable[..., Evaluated], tmp_path: Path) -> Callable[..., Evaluated]:
    return lambda name, **options: run_eval(cools, **{"samples": 3, "out": tmp_path / name} | options)


def test_a_record_grows_by_temperatures(run_at: Callable[..., Evaluated], tmp_path: Path) -> None:
    run_at("grown")
    before = samples_of(tmp_path / "grown")
    run_at("grown", temperatures=(0.6,), temperature_samples=2)
    (grown,) = run_at("grown", temperatures=(0.6, 0.3)).scores
    samples = samples_of(tmp_path / "grown")
    assert samples[: len(before)] == before and len(samples) == 6 * (3 + 1 + 2 * 4)
    (whole,) = run_at("whole", temperatures=[0.3, 0.6]).scores  # the same from nothing, in whatever order
    assert whole == grown == load_run(tmp_path / "grown")[0]
    assert sorted(samples_of(tmp_path / "whole"), key=str) == sorted(samples, key=str)
    assert len({(line["seed"]) for line in samples}) == len(samples)
    assert grown.at_temperature[0.3].value == 1.0 and grown.greedy.value == 0.0
    assert best_temperature([grown]) == 0.3
    graded = [json.loads(line) for line in (tmp_path / "grown/eval/sums/grades.jsonl").read_text().splitlines()]
    assert len(graded) == len(samples) and {line["cluster"] for line in graded if line["temperature"]} == {None}


def test_runs_are_compared_where_the_reference_is_best(run_at: Callable[..., Evaluated], tmp_path: Path) -> None:
    run_at("sft", temperatures=(0.6, 0.3))
    run_at("trim", temperatures=(0.3,), seed=1)
    run_at("old")
    paths = {name: tmp_path / name for name in ("sft", "trim", "old")}
    compared = compare(CompareSettings(runs=(paths["sft"], paths["trim"])))
    assert [one.metric for one in compared.comparisons] == ["average", "greedy", "T=0.3"]
    assert compared.comparisons[-1].before == compared.comparisons[-1].after == 1.0
    text = compared.render("markdown")
    assert "sft is right most often at T=0.3." in text and "Correct over the temperature" in text
    assert "T=0.6" in text
    lacking = compare(CompareSettings(runs=(paths["sft"], paths["old"])))
    assert [one.metric for one in lacking.comparisons] == ["average", "greedy"]
    assert "sft is right most often at T=0.3, where old has no answers." in lacking.render("markdown")
