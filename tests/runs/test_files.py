"""Files are whole or absent."""

from pathlib import Path

import pytest

from trimsft.runs.files import write_whole


def test_a_file_that_cannot_be_finished_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.json"
    write_whole(path, b"old")

    def full(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        write_whole(path, b"new")
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"old"]
