"""One stay on a GPU machine: each cell that is done is in the results, once."""

import json
import sys
from dataclasses import replace

from benchmarks.weights import stay
from tests.study.made_up_scores import cell, exact, write_run
from tests.tokens.tiny import make_table
from trimsft.runs import RunDirectory
from trimsft.study import scales
from trimsft.study.folder import StudyFolder


def test_cells_are_added_to_the_results_once(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setitem(scales.SCALES, "lab", replace(scales.LAB, compared=("base", "sft")))
    folder, results = StudyFolder(tmp_path / "stay"), tmp_path / "results.json"
    for one in (cell("base"), cell("sft")):  # as they come back: without weights
        write_run(folder, one, exact(0.5, benchmarks=scales.LAB.benchmarks))
        make_table(folder.tokens(one), [["1", " =", " x"] * 4] * 6)
        RunDirectory(folder.run(one)).mark_finished()
    before = {"seconds": {"evaluate": 80.0}, "machine": {"device": "H200"}}
    results.write_text(json.dumps({"support": 1, "cells": {"lab/sft/seed0": before}}))
    words = ["--scale", "lab", "--model", "lab=lab", "--out", str(folder.out), "--results", str(results)]
    monkeypatch.setattr(sys, "argv", ["stay", *words])
    for _ in range(2):
        stay.main()
        content = json.loads(results.read_text())
        assert content["support"] == 1 and list(content["cells"]) == ["lab/sft/seed0", "lab/base/seed0"]
        sft = content["cells"]["lab/sft/seed0"]
        assert sft["seconds"] == {"evaluate": 80.0} and sft["machine"] == {"device": "H200"}
        assert (
            len(sft["scores"]) == 3 and sft["tokens"]["tokens"] == 72 and 0 < sft["tokens"]["trim"]["mean_weight"] < 1
        )
    assert "lab/base/seed0 done before" in capsys.readouterr().out
    assert (folder.out / "tables" / "main" / "main.md").is_file()
