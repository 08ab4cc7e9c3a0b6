"""All commands, in the order of --help."""

from trimsft.cli import analysis, auditing, benching, evaluation, exporting, recipes, study, training, watching
from trimsft.cli.base import app

app.command()(study.quickstart)
app.command(context_settings=training.ANY_FIELD)(training.train)
app.command()(watching.watch)
app.add_typer(training.data_app, name="data")
app.command()(recipes.recipes)
app.command("eval")(evaluation.evaluate)
app.command()(evaluation.compare)
app.command()(analysis.tokens)
app.command()(auditing.audit)
app.command()(analysis.report)
app.command()(exporting.export)
app.add_typer(study.study_app, name="study")
app.command()(study.sweep)
app.command()(benching.bench)
app.command()(benching.doctor)

__all__ = ["app"]
