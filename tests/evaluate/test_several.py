"""Several engines as one: who is asked what, and what becomes of the work of one that fails."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.processes import ROOT
from trimsft.errors import UsageError
from trimsft.evaluate import EvalSettings, evaluate, run
from trimsft.evaluate.engines import Completion, EngineError, LocalModel, Request, Sampling
from trimsft.evaluate.engines.several import SeveralEngines, WorkerEngine

from .scripted import ScriptedEngine
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


def test_chats_are_shared_too() -> None:
    engines = [ScriptedEngine(by_seed) for _ in range(2)]
    chats = [Request("", seed, Sampling(), messages=({"role": "user", "content": f"{seed}?"},)) for seed in range(4)]
    list(SeveralEngines(engines).generate(chats))
    assert [len(engine.requests) for engine in engines] == [2, 2]


def test_others_finish_their_share_before_an_error() -> None:
    completions = SeveralEngines([Breaks(after=2), ScriptedEngine(by_seed)]).generate(requests_of(prompts=6))
    told = [next(completions).index for _ in range(11)]
    with pytest.raises(EngineError, match="out of memory"):
        next(completions)
    assert sorted(told) == [0, 1, 3, 4, 5, 9, 10, 11, 15, 16, 17]


def test_engines_of_different_models_are_refused() -> None:
    one, other = (ScriptedEngine(by_seed, identity={"model": name, "dtype": "bfloat16"}) for name in "ab")
    with pytest.raises(EngineError, match="they differ: model 'a' and 'b'"):
        SeveralEngines([one, other])


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
    assert len(started) == 2 and all(engine._process is None for engine in started)  # none is left behind
    settings = [json.loads((tmp_path / f"{n}/eval/sums/settings.json").read_text()) for n in (1, 2)]
    assert settings[0]["engine"] == settings[1]["engine"] and settings[1]["details"]["engines"] == 2


def test_a_killed_process_can_be_started_again(tmp_path: Path) -> None:
    engine = WorkerEngine(LocalModel(str(save_model(tmp_path / "model")), engine="transformers"))
    request = Request("What is 1+1?", seed=1, sampling=Sampling(max_tokens=4))
    with pytest.raises(EngineError, match="exceed the model's 256 positions"):
        engine.check([Request("What?", seed=1, sampling=Sampling(max_tokens=999))])
    (before,) = engine.generate([request])
    assert engine._process is not None and engine._process.pid is not None
    os.kill(engine._process.pid, signal.SIGKILL)
    with pytest.raises(EngineError, match="its process: ended with code -9"):
        list(engine.generate([request]))
    engine.close()
    assert list(engine.generate([request])) == [before]
    engine.close()


def test_a_process_ends_with_its_parent(tmp_path: Path) -> None:
    """A killed evaluation leaves no engine on a GPU, nor what that has started."""
    script = tmp_path / "script.py"
    script.write_text(
        "import subprocess, time\n"
        "from trimsft.evaluate.engines import LocalModel\n"
        "from trimsft.evaluate.engines.several import WorkerEngine\n"
        "class Model(LocalModel):\n"
        "    by_vllm = property(lambda self: subprocess.Popen(['sleep', '99']) and print('on', flush=True)"
        " or time.sleep(99))\n"
        "if __name__ == '__main__':\n"
        "    WorkerEngine(Model('m'))\n"
        "    time.sleep(99)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen([sys.executable, str(script)], stderr=subprocess.PIPE, env=environment) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"on\n"  # of the worker: its output is no part of the results
        process.kill()
        assert process.stderr.read() == b""  # ends when the worker and its child are gone, too


def test_where_one_cannot_load_the_model_the_others_end() -> None:
    engines = [Breaks(after=1), Breaks(after=1)]
    engines[1].identity = {"model": "another"}
    with pytest.raises(EngineError, match="must be alike"):
        run._together(engines)
    assert all(engine.is_closed for engine in engines)


@pytest.mark.parametrize(
    ("gpus", "each", "workers", "copies"),
    [(0, 1, None, 1), (0, 1, 3, 3), (4, 1, None, 4), (4, 2, None, 2), (8, 2, 3, 3)],
)
def test_how_many_copies_there_are(gpus: int, each: int, workers: int | None, copies: int) -> None:
    assert run._count_copies(each, workers, gpus) == copies


@pytest.mark.parametrize(("gpus", "workers"), [(2, 2), (1, None)])
def test_copies_without_gpus_are_refused(gpus: int, workers: int | None) -> None:
    with pytest.raises(UsageError, match="GPUs, and there are"):
        run._count_copies(2, workers, gpus)


def test_a_model_that_cannot_be_loaded_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    engine = WorkerEngine(LocalModel(str(tmp_path), engine="transformers"))
    for _ in range(2):  # the process has ended, so that the second question waits for nothing
        with pytest.raises(UsageError) as failure:
            _ = engine.identity
        assert "\n" not in str(failure.value)
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
