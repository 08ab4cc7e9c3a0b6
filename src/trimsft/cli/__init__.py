"""The command line: `trimsft quickstart | train | eval | compare | tokens | report | study | sweep | bench | doctor`.

Thin; what is heavy is imported inside its command. How commands end, and with which exit code: `trimsft.cli.ending`.
"""

from trimsft.cli import analysis, benching, evaluation, study, training
from trimsft.cli.base import app
from trimsft.cli.ending import heed_signals

# in the order of --help
app.command()(study.quickstart)
app.command(context_settings=training.ANY_FIELD)(training.train)
app.add_typer(training.data_app, name="data")
app.command("eval")(evaluation.evaluate)
app.command()(evaluation.compare)
app.command()(analysis.tokens)
app.command()(analysis.report)
app.add_typer(study.study_app, name="study")
app.command()(study.sweep)
app.command()(benching.bench)
app.command()(benching.doctor)


def main() -> None:
    """The program `trimsft`."""
    heed_signals()
    app(prog_name="trimsft")


__all__ = ["app", "main"]
