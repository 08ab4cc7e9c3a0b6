"""One grader for the whole session, which remembers what it has decided."""

import pytest

from trimsft.grading import Grader


@pytest.fixture(scope="session")
def grader() -> Grader:
    return Grader()
