"""What an error says, on one line."""

import pytest

from trimsft.errors import one_line


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no such file:\n  rows.jsonl\n"), "no such file: rows.jsonl"),
        (TimeoutError(), "TimeoutError"),
        (RuntimeError(" \n"), "RuntimeError"),
    ],
)
def test_an_error_is_one_line_and_never_nothing(error: Exception, said: str) -> None:
    assert one_line(error) == said
