"""The audit says what was answered: pip-audit itself passes where it could ask nobody."""

import json
import sys

import pytest

from tools.audit import audit

GOOD = {"name": "torch", "version": "2.13.0", "vulns": []}
BAD = {"name": "jinja2", "version": "2.0", "vulns": [{"id": "CVE-2024-1"}, {"id": "CVE-2024-2"}]}
SKIPPED = {"name": "trl", "skip_reason": "not found"}


def answering(*packages: dict[str, object]) -> list[str]:
    return [sys.executable, "-c", f"print({json.dumps(json.dumps({'dependencies': packages}))})"]


@pytest.mark.parametrize(
    ("command", "code", "line"),
    [
        (answering(GOOD, SKIPPED), 0, "audited: 1 of 2 dependencies, no known vulnerability"),
        (answering(GOOD, BAD), 1, "known vulnerabilities: jinja2 2.0: CVE-2024-1, jinja2 2.0: CVE-2024-2"),
        (answering(SKIPPED, SKIPPED), 0, "not audited: no network"),
        ([sys.executable, "-c", "raise ConnectionError"], 0, "not audited: no network"),
        ([sys.executable, "-m", "pip_audit_of_nowhere"], 0, "not audited: pip-audit is not installed"),
    ],
)
def test_what_was_answered_is_said(command, code, line) -> None:
    assert audit(command) == (code, line)


def test_nobody_waits_for_a_service_that_hangs() -> None:
    hanging = [sys.executable, "-c", "input()"]
    assert audit([*hanging], seconds=0.0) == (0, "not audited: no answer within 0 s")
