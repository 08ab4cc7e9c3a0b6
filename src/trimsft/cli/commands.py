"""All commands, in the order of --help."""

from trimsft.cli import analysis, auditing, doctor, evaluation, exporting, recipes, study, training, watching
from trimsft.cli.base import app

app.command("quickstart")(study.quickstart)
app.command("train", context_settings=training.ANY_FIELD)(training.train)
app.command("watch")(watching.watch)
training.data_app.command("preview", context_settings=training.ANY_FIELD)(training.preview)
app.add_typer(training.data_app, name="data")
app.command("recipes")(recipes.recipes)
app.command("eval")(evaluation.evaluate)
app.command("compare")(evaluation.compare)
app.command("tokens")(analysis.tokens)
app.command("audit")(auditing.audit)
app.command("report")(analysis.report)
app.command("export")(exporting.export)
for name, run in study.COMMANDS.items():
    study.study_app.command(name)(run)
app.add_typer(study.study_app, name="study")
app.command("sweep")(study.sweep)
app.command("doctor")(doctor.doctor)

__all__ = ["app"]
