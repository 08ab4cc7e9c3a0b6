"""Several engines as one: who is asked what, and what becomes of the work of one that fails."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.processes import ROOT
from trimsft.errors import UsageError
from trimsft.evaluate import EvalSettings, evaluate, run
from trimsft.evaluate.engines import Completion, Engine, EngineError, Request, Sampling, ScriptedEngine
from trimsft.evaluate.engines.local import LocalModel
from trimsft.evaluate.engines.several import LOST_AFTER, SeveralEngines, share
from trimsft.evaluate.engines.worker import WorkerEngine

from .test_server_engine import StandIn, serve
from .tiny_model import save_model

__all__ = ["serve"]


def requests_of(prompts: int, samples: int = 3) -> list[Request]:
    return [Request(f"{n}?", seed=10 * n + k, sampling=Sampling()) for n in range(prompts) for k in range(samples)]


def by_seed(request: Request) -> str:
    return f"seed {request.seed}"


def answers(engine: Any, requests: Sequence[Request]) -> list[str]:
    """The text that each request got, in their order; every one is answered once."""
    completions = sorted(engine.generate(requests), key=lambda one: one.index)
    assert [one.index for one in completions] == list(range(len(requests)))
    return [one.error or one.text for one in completions]


class Breaks(ScriptedEngine):
    """An engine whose process ends after some answers."""

    def __init__(self, after: int) -> None:
        super().__init__(by_seed)
        self._after, self.is_closed = after, False

    def generate(self, requests: Sequence[Request]) -> Iterator[Completion]:
        for completion in super().generate(requests):
            if completion.index == self._after:
                raise EngineError("out of memory")
            yield completion

    def close(self) -> None:
        self.is_closed = True


def test_all_samples_of_a_prompt_go_to_the_same_engine() -> None:
    engines = [ScriptedEngine(by_seed) for _ in range(3)]
    requests = requests_of(prompts=7)
    assert answers(SeveralEngines(engines), requests) == [by_seed(request) for request in requests]
    asked = [{request.prompt for request in engine.requests} for engine in engines]
    assert [len(prompts) for prompts in asked] == [3, 2, 2] and len(set.union(*asked)) == 7


def test_what_is_left_is_shared_again() -> None:
    requests = requests_of(prompts=4)
    assert share(requests, [1, 2, 5, 9, 11], 2) == [[1, 2, 9, 11], [5]]


def test_the_others_take_over_what_a_broken_engine_had() -> None:
    broken, requests = Breaks(after=2), requests_of(prompts=6)
    engine = SeveralEngines([broken, ScriptedEngine(by_seed)])
    assert answers(engine, requests) == [by_seed(request) for request in requests]
    assert broken.is_closed and engine.details["engines"] == 1


def test_an_engine_that_refuses_everything_is_left_out() -> None:
    dead = ScriptedEngine(by_seed, fails=lambda request: "connection refused")
    requests = requests_of(prompts=10)
    assert answers(SeveralEngines([dead, ScriptedEngine(by_seed)]), requests) == [by_seed(one) for one in requests]
    assert len(dead.requests) == LOST_AFTER


def test_a_failure_now_and_then_is_told_as_such() -> None:
    tired = ScriptedEngine(by_seed, fails=lambda request: "tired" if request.seed % 10 == 1 else None)
    told = answers(SeveralEngines([tired, ScriptedEngine(by_seed)]), requests_of(prompts=4))
    assert [text for text in told if text == "tired"] == ["tired"] * 2


def test_where_none_is_left_each_says_why() -> None:
    engine = SeveralEngines([Breaks(after=1), Breaks(after=0)])
    with pytest.raises(EngineError, match=r"no engine is left: out of memory; out of memory"):
        list(engine.generate(requests_of(prompts=4)))


def test_engines_of_different_models_are_refused() -> None:
    one, other = (ScriptedEngine(by_seed, identity={"model": name, "dtype": "bfloat16"}) for name in "ab")
    with pytest.raises(EngineError, match="they differ: model 'a' and 'b'"):
        SeveralEngines([one, other])


def test_it_is_an_engine_as_those_it_is_made_of() -> None:
    engines = [ScriptedEngine(by_seed), ScriptedEngine(by_seed)]
    for engine in (*engines, SeveralEngines(engines)):
        assert isinstance(engine, Engine) and engine.tokenizer is None
        engine.close()
        engine.close()


def test_who_leaves_early_ends_the_processes() -> None:
    engines = [Breaks(after=99), Breaks(after=99)]
    generating = SeveralEngines(engines).generate(requests_of(prompts=4))
    next(generating)
    generating.close()
    assert all(engine.is_closed for engine in engines)


# ---- processes and servers


@pytest.fixture
def benchmark(tmp_path: Path) -> Path:
    path = tmp_path / "sums.jsonl"
    rows = ({"id": f"{n}", "problem": f"What is {n}+{n}?", "answer": str(2 * n)} for n in range(5))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def samples_in(folder: Path) -> dict[tuple[str, int], str]:
    lines = map(json.loads, (folder / "eval/sums/samples.jsonl").read_text().splitlines())
    return {(line["problem"], line["sample"]): line["text"] for line in lines}


def test_two_processes_write_what_one_writes(tmp_path: Path, benchmark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = save_model(tmp_path / "model")
    started: list[WorkerEngine] = []

    def start(*arguments: Any) -> WorkerEngine:
        started.append(WorkerEngine(*arguments))
        return started[-1]

    monkeypatch.setattr(run, "WorkerEngine", start)
    given = {"model": str(model), "benchmarks": [str(benchmark)], "engine": "transformers"}
    given |= {"samples": 2, "sampling": Sampling(max_tokens=8)}
    for workers in (1, 2):
        evaluate(EvalSettings(**given, workers=workers, out=tmp_path / f"{workers}"))
    assert samples_in(tmp_path / "1") == samples_in(tmp_path / "2")
    assert len(started) == 2 and all(engine._worker is None for engine in started)  # none is left behind
    settings = [json.loads((tmp_path / f"{n}/eval/sums/settings.json").read_text()) for n in (1, 2)]
    assert settings[0]["engine"] == settings[1]["engine"] and settings[1]["details"]["engines"] == 2


def test_a_process_that_is_killed_says_so_and_can_be_started_again(tmp_path: Path) -> None:
    engine = WorkerEngine(LocalModel(str(save_model(tmp_path / "model")), engine="transformers"))
    request = Request("What is 1+1?", seed=1, sampling=Sampling(max_tokens=4))
    with pytest.raises(EngineError, match="exceed the model's 256 positions"):
        engine.check([Request("What?", seed=1, sampling=Sampling(max_tokens=999))])
    (before,) = engine.generate([request])
    assert engine._worker is not None
    os.kill(engine._worker._process.pid, signal.SIGKILL)
    with pytest.raises(EngineError, match="its process: "):
        list(engine.generate([request]))
    engine.close()
    assert list(engine.generate([request])) == [before]
    engine.close()


def test_a_process_ends_with_whoever_started_it_and_takes_along_what_it_started() -> None:
    """A killed evaluation leaves no engine on a GPU; vLLM's has processes of its own."""
    code = "import subprocess; from trimsft.evaluate.engines import worker; subprocess.Popen(['sleep', '99'])"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{code}; worker.main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        start_new_session=True,
    )
    process.communicate(timeout=60)  # closes its stdin; returns when nobody has its stdout any more, its child included
    assert process.returncode == -signal.SIGKILL


def test_where_one_cannot_load_the_model_the_others_end() -> None:
    engines = [Breaks(after=1), Breaks(after=1)]
    engines[1].identity = {"model": "another"}
    with pytest.raises(EngineError, match="must be alike"):
        run._together(engines)
    assert all(engine.is_closed for engine in engines)


@pytest.mark.parametrize(
    ("gpus", "each", "workers", "copies"),
    [([0], 1, None, 1), ([0], 1, 3, 3), ([4], 1, None, 4), ([4], 2, None, 2), ([3, 3], 2, None, 2), ([8], 2, 3, 3)],
)
def test_how_many_copies_there_are(gpus: list[int], each: int, workers: int | None, copies: int) -> None:
    assert run._copies(LocalModel("m", tensor_parallel=each), workers, gpus) == copies


@pytest.mark.parametrize(("gpus", "workers"), [([2], 2), ([3, 3], 3), ([1, 1], None)])
def test_copies_for_which_no_machine_has_gpus_are_refused(gpus: list[int], workers: int | None) -> None:
    with pytest.raises(UsageError, match="GPUs, and there are"):
        run._copies(LocalModel("m", tensor_parallel=2), workers, gpus)


def test_a_model_that_cannot_be_loaded_is_refused_in_one_line_whatever_is_asked(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    engine, requests = WorkerEngine(LocalModel(str(tmp_path), engine="transformers")), requests_of(prompts=1)
    with pytest.raises(EngineError) as failure:
        _ = engine.identity
    assert "\n" not in str(failure.value) and engine._worker is not None
    os.kill(engine._worker._process.pid, signal.SIGKILL)  # so that whoever waits for another line gets an end
    for ask in (lambda: engine.identity, lambda: engine.check(requests), lambda: list(engine.generate(requests))):
        with pytest.raises(EngineError) as again:
            ask()
        assert str(again.value) == str(failure.value)
    engine.close()


@pytest.fixture
def cluster() -> Iterator[None]:
    ray = pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT / "src"))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        patch.delenv("RAY_ADDRESS", raising=False)
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        yield
        ray.shutdown()


@pytest.mark.filterwarnings("ignore")  # ray and its packages have many
@pytest.mark.usefixtures("cluster")
def test_processes_of_a_ray_cluster_share_the_work(tmp_path: Path) -> None:
    model = save_model(tmp_path / "model")
    given = {"model": str(model), "benchmarks": ["math500"], "engine": "transformers"}
    engine = run.make_engine(EvalSettings(**given, executor="ray", workers=2))
    with pytest.raises(EngineError, match="exceed the model's 256 positions"):
        engine.check([Request("What?", seed=1, sampling=Sampling(max_tokens=999))])
    requests = [replace(one, sampling=Sampling(max_tokens=4)) for one in requests_of(prompts=4)]
    expected = answers(run.make_engine(EvalSettings(**given)), requests)
    assert answers(engine, requests) == expected
    assert isinstance(engine, SeveralEngines) and engine.details["engines"] == 2
    engine._engines[0].close()  # as a machine that is lost
    assert answers(engine, requests) == expected
    assert engine.details["engines"] == 1
    engine.close()


def test_servers_share_the_work(serve: Callable[..., StandIn], tmp_path: Path, benchmark: Path) -> None:
    servers = [serve(), serve()]
    given: dict[str, Any] = {"model": "m", "benchmarks": [str(benchmark)], "samples": 2, "template": "plain"}
    addresses = ", ".join(server.address for server in servers)
    evaluate(EvalSettings(**given, out=tmp_path / "run", server=addresses))
    assert len(samples_in(tmp_path / "run")) == 15
    assert all(server.asked for server in servers)
    settings = json.loads((tmp_path / "run/eval/sums/settings.json").read_text())
    assert settings["details"]["addresses"] == [server.address for server in servers]


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({"server": "http://a:1,http://a:1"}, "server: is given twice, got 'http://a:1'"),
        ({"server": "http://a:1", "workers": 2}, "workers: has no effect on a server"),
        ({"workers": 0}, "workers: must be at least 1"),
    ],
)
def test_settings_that_cannot_be(given: dict[str, Any], refusal: str) -> None:
    with pytest.raises(UsageError, match=refusal):
        EvalSettings(model="m", benchmarks=["math500"], **given)
