"""Training problems that are benchmark problems: equal once lower-cased and without all but letters and digits."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from trimsft.data.load import is_text, list_files, read_file
from trimsft.errors import DataError


def find_overlap(problems: Iterable[str], benchmarks: Mapping[str, Iterable[str]]) -> dict[str, list[int]]:
    """Return the rows of training problems that are in each benchmark, from 0; a problem may be in several.

    >>> find_overlap(["What is 1+1?", "Find $x$."], {"toy": ["what is 1 + 1"], "other": ["Find $y$."]})
    {'toy': [0], 'other': []}
    """

    def bare(text: str) -> str:
        return re.sub(r"[\W_]+", "", text.lower())

    # a problem of symbols alone is nothing to compare by
    known = {name: set(map(bare, texts)) - {""} for name, texts in benchmarks.items()}
    trained = list(map(bare, problems))
    return {name: [row for row, problem in enumerate(trained) if problem in texts] for name, texts in known.items()}


def read_benchmarks(folder: str | Path) -> dict[str, list[str]]:
    """Return the field "problem" of every *.jsonl (or *.jsonl.gz) of a folder, by the name of the file."""
    files = list_files(str(folder), field="benchmarks_dir")
    sources = {path.name.partition(".")[0]: read_file(path) for path in files if ".jsonl" in path.suffixes}
    if not sources:
        raise DataError("the folder holds no .jsonl file", field="benchmarks_dir", value=str(folder))
    for source in sources.values():
        for place, problem in zip(source.places, source.column("problem"), strict=True):
            if not is_text(problem):
                raise DataError(f'{place}: no text in the field "problem", which a benchmark needs')
    return {name: list(source.column("problem")) for name, source in sources.items()}
