"""`trimsft completion`: scripts that let a shell complete commands, options and their values.

They are made from the commands themselves, and stand alone: completing starts no Python.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from trimsft.cli.ending import ending
from trimsft.cli.manual import is_argument, is_switch
from trimsft.options import unknown_name

SHELLS = ("bash", "zsh", "fish")
Shell = Annotated[str, typer.Argument(metavar="SHELL", help=f"The shell: {', '.join(SHELLS)}.")]


def completion(shell: Shell) -> None:
    """Print a script that completes commands and options in a shell.

    \b
    Examples:
      source <(trimsft completion bash)       # in ~/.bashrc, to have it always
      source <(trimsft completion zsh)        # in ~/.zshrc
      trimsft completion fish > ~/.config/fish/completions/trimsft.fish
    """
    with ending({"shell": "SHELL"}):
        if shell not in SHELLS:
            raise unknown_name("shell", shell, SHELLS)
        from trimsft.cli.commands import app

        lines = list(_known(typer.main.get_command(app), ()))
        typer.echo(_fish(lines) if shell == "fish" else _bash(lines, for_zsh=shell == "zsh"))


@dataclass(frozen=True)
class Known:
    """A command: its words, what may follow them, and what its options take."""

    words: tuple[str, ...]
    help: str
    commands: tuple[str, ...]
    options: dict[str, str]
    """By option, its help."""
    values: dict[str, tuple[str, ...]]
    """By option that takes a value, what it may be; empty for a path or a text."""


def _known(command: Any, words: tuple[str, ...]) -> Iterator[Known]:
    inner = getattr(command, "commands", {})
    options: dict[str, str] = {"--help": "Show how the command is used."}
    values: dict[str, tuple[str, ...]] = {}
    for parameter in command.params:
        if is_argument(parameter):
            continue
        for name in (*parameter.opts, *parameter.secondary_opts):
            options[name] = (parameter.help or "").split(". ")[0].rstrip(".")
            if not is_switch(parameter):
                values[name] = _choices(parameter.help or "") or known_values().get(name, ())
    if words in (("train",), ("data", "preview")):
        for name in _fields():
            options.setdefault(name, "")
            values.setdefault(name, known_values().get(name, ()))
    yield Known(words, (command.get_short_help_str(80) or ""), tuple(inner), options, values)
    for name, one in inner.items():
        yield from _known(one, (*words, name))


def _choices(text: str) -> tuple[str, ...]:
    """The values that a help lists: "One of: auto, cpu."."""
    _, listed, rest = text.partition("One of: ")
    return tuple(rest.split(".")[0].split(", ")) if listed else ()


@functools.cache
def known_values() -> dict[str, tuple[str, ...]]:
    """Names that options take beside paths, which are completed with them."""
    from trimsft.evaluate.benchmarks import BENCHMARKS
    from trimsft.lab import TIERS
    from trimsft.objectives import OBJECTIVES
    from trimsft.shipped import list_shipped

    benchmarks = (*TIERS, *BENCHMARKS)
    recipes = tuple(one.name for one in list_shipped() if one.name.endswith(".yaml") or "/" not in one.name)
    return {
        "--objective": (*OBJECTIVES,), "--method": (*OBJECTIVES,), "--benchmark": benchmarks, "-b": benchmarks,
        "--config": recipes,
    }  # fmt: skip


def _fields() -> list[str]:
    """Every field of `trimsft train`."""
    from trimsft.train.settings import ALSO, Parser

    own = [name for action in Parser()._actions for name in action.option_strings if name.startswith("--")]
    return [*(f"--{name}" for name in ("config", *ALSO)), "--dry-run", "--json", "--quiet", *own]


_BASH = """_trimsft() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} path= place
    for place in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$path $place" in
            {paths}) path="$path $place" ;;
        esac
    done
    case "$path $before" in
{values}
    esac
    case "$path" in
{options}
    esac
    [[ $word == -* || $path == {groups} ]] || COMPREPLY+=($(compgen -f -- "$word"))
}}
complete -o filenames -F _trimsft trimsft"""


def _bash(lines: list[Known], *, for_zsh: bool) -> str:
    paths = "|".join(f'" {" ".join(one.words)}"' for one in lines if one.words)
    values = [
        f'        "{_path(one)} {name}") COMPREPLY=($(compgen {_taken(choices)} -- "$word")); return ;;'
        for one in lines
        for name, choices in one.values.items()
    ]
    options = [
        f'        "{_path(one)}") COMPREPLY=($(compgen -W {shlex.quote(" ".join([*one.commands, *one.options]))} '
        '-- "$word")) ;;'
        for one in lines
    ]
    groups = "@({})".format("|".join(f'"{_path(one)}"' for one in lines if one.commands))
    script = _BASH.format(paths=paths, groups=groups, values="\n".join(values), options="\n".join(options))
    return f"autoload -U +X bashcompinit && bashcompinit\n{script}" if for_zsh else script


def _path(one: Known) -> str:
    return "".join(f" {word}" for word in one.words)


def _taken(choices: tuple[str, ...]) -> str:
    """Files beside names, which may stand for one."""
    return f"-f -W {shlex.quote(' '.join(choices))}" if choices else "-f"


def _fish(lines: list[Known]) -> str:
    script = ["complete -c trimsft -f -n __fish_use_subcommand"]
    for one in lines:
        inside = "__fish_use_subcommand" if not one.words else f"__fish_seen_subcommand_from {one.words[-1]}"
        for name in one.commands:
            about = next(inner.help for inner in lines if inner.words == (*one.words, name))
            script.append(f"complete -c trimsft -n '{inside}' -f -a {name} -d {shlex.quote(about)}")
        for name, about in one.options.items():
            flag = f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
            choices = one.values.get(name)
            takes = "" if choices is None else f" -x -a {shlex.quote(' '.join(choices))}" if choices else " -r"
            script.append(f"complete -c trimsft -n '{inside}' {flag}{takes} -d {shlex.quote(about)}")
    return "\n".join(script)
