"""Secrets of the environment and of settings: none of them in any file that is written, nor in what is printed."""

import base64
import gzip
import json
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tools.soak.campaign import Kind, Lost, Trial, require_told
from tools.soak.servers import honest, server

VARIABLES = (
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "OPENAI_API_KEY",
    "WANDB_API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "MY_PASSWORD",
)


def keep_secrets(trial: Trial) -> None:
    """A command among secrets, and a search through everything it wrote."""
    bench, rng = trial.bench, trial.rng
    real = trial.number % 4 == 3
    secrets = {name: f"soak{name.lower().replace('_', '')}{rng.randrange(10**12)}" for name in VARIABLES}
    given = f"soakgiven{rng.randrange(10**12)}"
    cases = ("train", "recipe", "server", "sweep", "tokens")
    case = cases[trial.number % len(cases)]
    trial.note(f"{case} among secrets{', a process' if real else ''}")

    def reply(what: str, seed: int) -> tuple[int, dict[str, str], bytes]:
        return 200, {}, json.dumps(honest(what, seed)).encode()

    with server(reply) as address:
        words = {
            "train": [*bench.words("train"), "--hub_token", given],
            "recipe": ["train", "--config", str(_recipe(trial, given)), "--output_dir", "out"],
            "server": ["eval", "soak", "-b", str(bench.benchmark), "--server", address.replace("//", f"//me:{given}@"),
                       "--samples", "1", "--template", "plain", "--out", "out"],
            "sweep": [*bench.words("study"), "--set", f"hub_token={given}"],
            "tokens": bench.words("tokens"),
        }[case]  # fmt: skip
        require_told(trial.run(words, real=real, timeout=300, **secrets), case)
    if case in ("train", "recipe"):
        require_told(trial.run(["report", "out", "--out", "page"], **secrets), "report")
    for path in sorted(trial.folder.rglob("*")):
        if path.is_file() and path.parent.name != "recipes":
            for name, secret in {**secrets, "what the command was given": given}.items():
                if any(_holds(content, secret) for content in _contents(path)):
                    raise Lost(f"{case}: {name} stands in {path.relative_to(trial.folder)}")


def _recipe(trial: Trial, given: str) -> Path:
    import yaml

    words = trial.bench.words("train")[1:]
    fields = {name[2:]: yaml.safe_load(value) for name, value in zip(words[::2], words[1::2], strict=True)}
    path = trial.folder / "recipes" / "recipe.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump({**fields, "hub_token": given, "env": {"SOAK_API_KEY": given}}))
    return path


def _holds(content: bytes, secret: str) -> bool:
    coded = base64.b64encode(secret.encode()).rstrip(b"=")[4:-4]
    return secret.encode() in content or secret.encode("utf-16-le") in content or coded in content


def _contents(path: Path) -> Iterator[bytes]:
    """A file as it is, and unpacked."""
    content = path.read_bytes()
    yield content
    with suppress(OSError, EOFError):
        yield gzip.decompress(content)
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as packed:
            for name in packed.namelist():
                yield packed.read(name)
    if path.suffix == ".parquet":
        import pyarrow.parquet as parquet

        table = parquet.read_table(path)
        yield repr((table.schema.metadata, table.to_pydict())).encode()


KINDS = [Kind("secrets", keep_secrets, weight=2, how="forks, one in four a process")]
