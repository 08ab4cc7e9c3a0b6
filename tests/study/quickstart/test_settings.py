"""How much is done, and that training takes the words it is given."""

from pathlib import Path

import pytest

from trimsft.objectives import OBJECTIVES
from trimsft.study.quickstart import Settings
from trimsft.study.quickstart.settings import BASE, LABELS, training_words


def test_all_objectives_in_the_order_of_the_paper_after_the_base() -> None:
    assert Settings().runs == tuple(LABELS) == (BASE, *OBJECTIVES)
    assert Settings.fast().methods == ("sft", "trim")
    assert Settings(rows=25, batch=12).steps == 3


def test_methods_differ_in_nothing_but_the_objective() -> None:
    settings, words = Settings(seed=3), {}
    for method in settings.methods:
        words[method] = training_words(settings, method, data=Path("d"), out=Path("o"))
        words[method].remove(method)
    band = ["--margin", "1.5", "--bandwidth", "0.8"]
    assert all(rest == words["sft"] + band * name.startswith("trim") for name, rest in words.items())
    assert words["sft"][words["sft"].index("--seed") + 1] == "3"


def test_training_knows_every_word() -> None:
    from trimsft.train.settings import parse

    words = training_words(Settings(), "trim-e", data=Path("d.jsonl"), out=Path("o"))
    args = parse(words).args
    for method in Settings().methods:  # a band is refused by methods that have none
        parse(training_words(Settings(margin=4.0), method, data=Path("d.jsonl"), out=Path("o")))
    assert (args.objective, args.learning_rate, args.adam_beta2, args.seed) == ("trim-e", 5e-4, 0.95, 0)
    assert args.get_warmup_steps(50) == 5


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("rows", 0, "rows: must be a whole number of at least 1, got 0"),
        ("seed", -1, "seed: must be a whole number of at least 0, got -1"),
        ("samples", True, "samples: must be a whole number of at least 1, got True"),
        (
            "methods",
            ("sft", "base"),
            "methods: unknown name 'base'; known: sft, fsft, dft, trim, trim-e, trim-h",
        ),
    ],
)
def test_what_cannot_be_is_refused(field: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**{field: value})  # type: ignore[arg-type]
