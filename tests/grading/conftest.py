"""One grader for the whole session, which remembers what it has decided."""

from collections.abc import Iterator

import pytest

from trimsft.grading import Grader


@pytest.fixture(scope="session")
def grader() -> Iterator[Grader]:
    with Grader() as shared:
        yield shared
