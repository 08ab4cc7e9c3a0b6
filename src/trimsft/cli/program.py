"""The program `trimsft`: its help and its version load no command, which would take half a second."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from trimsft import __version__

COMMANDS = {
    "quickstart": "Compare objectives on a small model, on a CPU, offline.",
    "tokens": "Measure what a model thinks of every trained token.",
    "train": "Fine-tune a model.",
    "eval": "Sample, grade and score the answers of a model.",
    "compare": "Compare evaluated runs, problem by problem.",
    "report": "Write one page about runs.",
    "export": "Write a trained model as one folder for other programs.",
    "audit": "Rank what looks wrong in training data.",
    "sweep": "Train a grid of settings and say which is best.",
    "study": "Repeat the paper's tables and figures, on your models.",
    "watch": "See how a training is going, in small curves.",
    "doctor": "Check this machine.",
    "recipes": "List the shipped recipes and examples, or copy them.",
}


class Program(TyperGroup):
    """The commands, imported when one of them is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        from trimsft.cli.commands import commands

        return typer.main.get_group(commands).commands.get(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


app = typer.Typer(
    cls=Program,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda word: word.replace("_", "-"),  # --max_tokens
    },
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"trimsft {__version__}")
        raise typer.Exit


VersionFlag = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
]


@app.callback()
def program(version: VersionFlag = False) -> None:
    """Fine-tune language models on the tokens that matter.

    \b
    Start here:
      trimsft quickstart                        # all of it in minutes, offline
      trimsft tokens MODEL --data DATA.jsonl    # does the model support the data?
      trimsft train --model MODEL --data DATA.jsonl
      trimsft eval RUN -b math500               # then: trimsft compare RUN RUN
    """
