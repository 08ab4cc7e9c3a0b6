"""One grader for the whole session: starting a worker costs more than all grades of a test."""

from collections.abc import Iterator

import pytest

from trimsft.grading import Grader


@pytest.fixture(scope="session")
def grader() -> Iterator[Grader]:
    """Patient: on a busy machine, too, an answer is wrong and not late."""
    with Grader(seconds=120) as shared:
        yield shared
