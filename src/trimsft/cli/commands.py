"""All commands, in the order of --help."""

from trimsft.cli import (
    analysis,
    auditing,
    benching,
    completion,
    evaluation,
    exporting,
    recipes,
    study,
    training,
    watching,
)
from trimsft.cli.base import app
from trimsft.cli.manual import add

add(app, "quickstart", study.quickstart)
add(app, "train", training.train, context_settings=training.ANY_FIELD)
add(app, "watch", watching.watch)
add(training.data_app, "preview", training.preview, context_settings=training.ANY_FIELD)
app.add_typer(training.data_app, name="data")
add(app, "recipes", recipes.recipes)
add(app, "eval", evaluation.evaluate)
add(app, "compare", evaluation.compare)
add(app, "tokens", analysis.tokens)
add(app, "audit", auditing.audit)
add(app, "report", analysis.report)
add(app, "export", exporting.export)
for name, run in study.COMMANDS.items():
    add(study.study_app, name, run)
app.add_typer(study.study_app, name="study")
add(app, "sweep", study.sweep)
add(app, "bench", benching.bench)
add(app, "doctor", benching.doctor)
add(app, "completion", completion.completion)

__all__ = ["app"]
