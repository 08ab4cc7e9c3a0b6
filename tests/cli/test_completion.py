"""What a shell completes, asked of the shell itself."""

import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimsft import cli

ASK = """source "$0"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_trimsft
printf '%s\\n' "${COMPREPLY[@]}" """


@pytest.fixture(scope="module")
def scripts(tmp_path_factory) -> dict[str, Path]:
    made = {}
    for shell in ("bash", "zsh", "fish"):
        done = CliRunner().invoke(cli.app, ["completion", shell], catch_exceptions=False)
        assert done.exit_code == 0, done.stderr
        made[shell] = tmp_path_factory.mktemp("completion") / shell
        made[shell].write_text(done.stdout)
    return made


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("trimsft ev", {"eval"}),
        ("trimsft study ", {"list", "show", "run", "status", "table", "--help"}),
        ("trimsft eval runs/x --eng", {"--engine"}),
        ("trimsft eval runs/x --engine v", {"vllm"}),
        ("trimsft study run main --sc", {"--scale"}),
        ("trimsft train --objective auto", {"auto-trim"}),
        ("trimsft train --learning_r", {"--learning_rate"}),
        ("trimsft eval -b lab-e", {"lab-easy"}),
        ("trimsft tokens m --data rows", {"rows.jsonl"}),
    ],
)
def test_bash_completes_commands_options_and_values(words, completed, scripts, tmp_path) -> None:
    (tmp_path / "rows.jsonl").touch()
    command = ["bash", "-c", ASK, str(scripts["bash"]), *words.split(" ")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (set(done.stdout.split()), done.stderr) == (completed, "")


def test_the_scripts_of_the_other_shells(scripts) -> None:
    assert scripts["zsh"].read_text().startswith("autoload -U +X bashcompinit && bashcompinit\n_trimsft()")
    fish = scripts["fish"].read_text().splitlines()
    assert "complete -c trimsft -n '__fish_use_subcommand' -f -a eval" in "\n".join(fish)
    assert any(
        line.startswith("complete -c trimsft -n '__fish_seen_subcommand_from eval' -l engine -x") for line in fish
    )
    unknown = CliRunner().invoke(cli.app, ["completion", "tcsh"])
    assert unknown.exit_code == 2
    assert unknown.stderr == "trimsft: SHELL: unknown name 'tcsh'; did you mean 'zsh'? known: bash, zsh, fish\n"
