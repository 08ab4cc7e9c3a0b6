"""The data beside a figure are the formulas."""

from pathlib import Path

import numpy as np

from trimsft.report.figures import weighting_functions


def test_figure_data_are_the_formulas(tmp_path: Path) -> None:
    weighting_functions(tmp_path / "figure.svg")
    table = np.genfromtxt(tmp_path / "figure.csv", delimiter=",", names=True, deletechars="")
    band = np.exp(-((table["gap"] - 1.5) ** 2) / (2 * 0.8**2))
    assert np.allclose(table["trim_m1.5_tau0.8"], band, atol=1e-6)
    assert np.allclose(table["trim_e_m1.5_tau0.8"], np.where(table["gap"] < 1.5, band, 1), atol=1e-6)
    assert np.allclose(table["trim_h_m1.5_tau0.8"], np.where(table["gap"] > 1.5, band, 1), atol=1e-6)
    assert (table["sft"] == 1).all()


def test_the_same_numbers_in_a_column(tmp_path: Path) -> None:
    wide = weighting_functions(tmp_path / "wide.svg")
    column = weighting_functions(tmp_path / "column.svg", column=True, formats=(".svg", ".pdf", ".png"))
    assert [path.suffix for path in wide] == [".svg", ".png", ".csv"]
    assert [path.suffix for path in column] == [".svg", ".pdf", ".png", ".csv"]
    assert wide[-1].read_bytes() == column[-1].read_bytes()
