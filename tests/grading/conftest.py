"""One grader for the whole session: starting a worker costs more than all grades of a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trimsft.grading import Grader


@pytest.fixture(scope="session")
def grader() -> Iterator[Grader]:
    with Grader() as shared:
        assert shared.grade(r"\boxed{\int_0^1 2x dx}", "1").correct  # starts the worker
        yield shared
