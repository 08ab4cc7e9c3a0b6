import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from trimsft import cli, quickstart
from trimsft.objectives import OBJECTIVES

SMALL = quickstart.Task(vocabulary=32, hidden_size=24, tokens=512, base_steps=120, steps=60)


@pytest.fixture(scope="module")
def result() -> quickstart.Result:
    return quickstart.run(SMALL)


def test_every_objective_is_fitted_from_the_same_base(result) -> None:
    assert [fit.objective for fit in result.fits] == list(OBJECTIVES)
    assert len({fit.nll.before for fit in result.fits}) == 1
    assert len({fit.unseen.before for fit in result.fits}) == 1


def test_losses_fall(result) -> None:
    for fit in result.fits:
        assert 0 <= fit.loss.after < fit.loss.before


def test_numbers_are_what_their_names_say(result) -> None:
    fits = {fit.objective: fit for fit in result.fits}
    assert fits["sft"].effective_ratio == quickstart.Change(pytest.approx(1), pytest.approx(1))
    assert fits["sft"].weight == quickstart.Change(1, 1)
    assert fits["sft"].loss.after == pytest.approx(fits["sft"].nll.after)
    assert fits["dft"].loss.before < fits["sft"].loss.before
    for fit in result.fits:
        for share in (fit.weight, fit.effective_ratio, fit.skipped, fit.right, fit.wrong, fit.unseen):
            assert 0 <= share.before <= 1 + 1e-6
            assert 0 <= share.after <= 1 + 1e-6


def test_trimming_the_hard_side_leaves_wrong_labels_alone(result) -> None:
    fits = {fit.objective: fit for fit in result.fits}
    for trims in ("trim", "trim-e"):
        assert fits[trims].wrong.after < fits["sft"].wrong.after / 2


def test_equal_seeds_give_equal_numbers_and_leave_the_callers_generator_alone(result) -> None:
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    assert quickstart.run(SMALL) == result
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_command_writes_report_and_figure(tmp_path, monkeypatch, result) -> None:
    monkeypatch.setattr(quickstart, "run", lambda progress: result)
    done = CliRunner().invoke(cli.app, ["quickstart", "--out", str(tmp_path / "new")], catch_exceptions=False)
    assert done.exit_code == 0
    assert all(name in done.stdout for name in OBJECTIVES)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "quickstart.json",
        "weighting_functions.csv",
        "weighting_functions.png",
        "weighting_functions.svg",
    ]
    report = json.loads((tmp_path / "new" / "quickstart.json").read_text())
    assert [fit["objective"] for fit in report["fits"]] == list(OBJECTIVES)
    weights = dict(zip(report["example_weights"]["gap"], report["example_weights"]["trim"], strict=True))
    assert weights[1.5] == 1
    assert weights[3.0] == pytest.approx(np.exp(-(1.5**2) / (2 * 0.8**2)))


def test_json_is_the_only_thing_on_stdout(monkeypatch, result) -> None:
    monkeypatch.setattr(quickstart, "run", lambda progress: result)
    done = CliRunner().invoke(cli.app, ["quickstart", "--json"], catch_exceptions=False)
    assert json.loads(done.stdout)["task"]["tokens"] == SMALL.tokens


def test_figure_data_are_the_formulas(tmp_path) -> None:
    from trimsft.figures import weighting_functions

    weighting_functions(tmp_path / "figure.svg")
    table = np.genfromtxt(tmp_path / "figure.csv", delimiter=",", names=True, deletechars="")
    band = np.exp(-((table["gap"] - 1.5) ** 2) / (2 * 0.8**2))
    assert np.allclose(table["trim_m1.5_tau0.8"], band, atol=1e-6)
    assert np.allclose(table["trim_e_m1.5_tau0.8"], np.where(table["gap"] < 1.5, band, 1), atol=1e-6)
    assert np.allclose(table["trim_h_m1.5_tau0.8"], np.where(table["gap"] > 1.5, band, 1), atol=1e-6)
    assert (table["sft"] == 1).all()


def test_a_file_that_cannot_be_finished_leaves_the_old_one(tmp_path, monkeypatch) -> None:
    from trimsft.runs import write_whole

    path = tmp_path / "report.json"
    write_whole(path, b"old")

    def full(_):
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        write_whole(path, b"new")
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"old"]
