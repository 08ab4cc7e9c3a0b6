"""`python -m tools.audit`: has any installed dependency a known vulnerability? One line; part of `make check`.

pip-audit asks a service. Where that cannot be reached it calls every package skipped and the audit passed, so the
answers are counted here: exit code 1 for a vulnerability, 0 with "not audited" where nobody could be asked.
"""

import json
import subprocess
import sys
from collections.abc import Sequence

COMMAND = (sys.executable, "-m", "pip_audit", "--skip-editable", "--progress-spinner", "off", "--format", "json")
SECONDS = 30.0


def audit(command: Sequence[str] = (*COMMAND, "--timeout", "2"), seconds: float = SECONDS) -> tuple[int, str]:
    """Return the exit code, and what to say."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        packages = json.loads(done.stdout)["dependencies"]
    except subprocess.TimeoutExpired:
        return 0, f"not audited: no answer within {seconds:g} s"
    except (ValueError, KeyError):
        is_missing = "No module named pip_audit" in done.stderr
        return 0, f"not audited: {'pip-audit is not installed' if is_missing else 'no network'}"
    answered = [one for one in packages if "skip_reason" not in one]
    if not answered:
        return 0, "not audited: no network"
    holes = [
        f"{package['name']} {package['version']}: {hole['id']}" for package in answered for hole in package["vulns"]
    ]
    if holes:
        return 1, f"known vulnerabilities: {', '.join(holes)}"
    return 0, f"audited: {len(answered)} of {len(packages)} dependencies, no known vulnerability"


def main() -> int:
    code, line = audit()
    sys.stdout.write(line + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
