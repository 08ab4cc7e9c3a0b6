"""What a damaged file makes of `report` and `compare`: shown or refused in one line, never a traceback."""

from tests.report.damage import campaign
from trimsft.report import figures


def test_damaged_records_are_shown_or_refused_in_one_line(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(figures.Drawing, "save", lambda self, path: [])  # they are drawn from what was read
    outcomes = campaign(tmp_path, trials=12, seed=3)
    assert sum(outcomes.values()) == 12 and set(outcomes) <= {"shown", "refused"} and outcomes["refused"] >= 5
