"""Runs TRL's own SFT tests with TRL's trainer and with ours, on local stand-ins, and compares the outcomes.

    python -m tools.trl_suite.run --trl-tests TRL/tests --work FOLDER

TRL/tests is the tests folder of a checkout of TRL; nothing of it is part of this repository. FOLDER keeps the
stand-ins and outcomes.json: for each test and trainer how it ended, how long it took and what it said.
Exit code 1 if a test passes with TRL's trainer, not with ours, and is not among the refusals.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from . import datasets_local, models_local
from .compare import compare, summary

HERE = Path(__file__).resolve().parent
TRAINERS = ("trl", "trimsft")
PACKAGES = ("trl", "transformers", "torch", "accelerate", "datasets", "peft", "pytest")
OPTIONAL = ("liger-kernel", "bitsandbytes", "pytest-datadir")


def run_suite(trainer: str, tests: Path, work: Path, expression: str) -> dict[str, Any]:
    """One run of test_sft_trainer.py in a process of its own; {test: {"outcome", "seconds", "message"}}."""
    report = work / f"report-{trainer}.json"
    report.unlink(missing_ok=True)
    source = HERE.parents[1] / "src"
    paths = [str(HERE.parent), str(source), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "HF_HOME": str(work / "home"),
        "HF_HUB_CACHE": str(work / "hub"),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",  # two-layer models lose more to threads than they gain
        "TRL_SUITE_TRAINER": trainer,
        "TRL_SUITE_DATASETS": str(work / "datasets"),
        "TRL_SUITE_REPORT": str(report),
    }
    options = ["-p", "trl_suite.plugin", "-p", "no:cacheprovider", "-q", "--tb=short", f"--rootdir={tests.parent}"]
    options += ["-k", expression] if expression else []
    log = work / f"log-{trainer}.txt"
    with log.open("w") as output:
        subprocess.run(
            [sys.executable, "-m", "pytest", *options, str(tests / "test_sft_trainer.py")],
            cwd=tests.parent,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if not report.exists():
        sys.exit(f"the run with {trainer} left no report; its output is in {log}")
    return json.loads(report.read_text())


def build_hub(folder: Path) -> None:
    """Write what the suite would download, once: hub/ is a cache of models, datasets/ holds folders."""
    import datasets
    import transformers

    if (folder / "complete").exists():
        return
    datasets.disable_progress_bars()  # of some fifty small files
    transformers.utils.logging.disable_progress_bar()
    for name in models_local.TEXT_MODELS:
        models_local.write_text_model(folder / "hub", name)
    models_local.write_remote_model(folder / "hub")
    models_local.write_tokenizer_only(folder / "hub")
    for name in datasets_local.DATASETS:
        datasets_local.write_dataset(folder / "datasets" / name, name)
    (folder / "complete").write_text("")


def versions() -> dict[str, str]:
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for package in PACKAGES + OPTIONAL:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl-tests", type=Path, required=True, help="the tests folder of a checkout of TRL")
    parser.add_argument("--work", type=Path, required=True, help="where stand-ins and outcomes are kept")
    parser.add_argument("--trainer", choices=TRAINERS, help="run this one only; the other's last run is kept")
    parser.add_argument("-k", dest="expression", default="", help="only tests that match, as in pytest")
    options = parser.parse_args(arguments)
    options.trl_tests, options.work = options.trl_tests.resolve(), options.work.resolve()
    if not (options.trl_tests / "test_sft_trainer.py").is_file():
        parser.error(f"--trl-tests: no test_sft_trainer.py in {options.trl_tests}; give TRL's tests folder")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    build_hub(options.work)
    trainers = [options.trainer] if options.trainer else TRAINERS
    ran = {trainer: run_suite(trainer, options.trl_tests, options.work, options.expression) for trainer in trainers}
    outcomes_file = options.work / "outcomes.json"
    outcomes: dict[str, Any] = {}
    if outcomes_file.exists():
        outcomes = json.loads(outcomes_file.read_text())["outcomes"]
    for trainer in trainers:
        kept = outcomes.get(trainer, {}) if options.expression else {}
        outcomes[trainer] = kept | ran[trainer]
    result = compare(outcomes.get("trl", {}), outcomes.get("trimsft", {}))
    outcomes_file.write_text(json.dumps({"versions": versions(), "outcomes": outcomes, **result}, indent=2))
    sys.stdout.write(summary(outcomes, result) + "\n")
    return 1 if result["lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
