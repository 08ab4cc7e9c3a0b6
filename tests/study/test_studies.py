"""The paper's studies: the cells they name, and those they share."""

from trimsft.study import paper
from trimsft.study.cell import Cell
from trimsft.study.scales import LAB, PAPER, Scale, ScaleOptions
from trimsft.study.studies import STUDIES, in_the_paper


def bands(name: str, objective: str = "trim", scale: Scale = LAB) -> set[tuple[float, float]]:
    cells = STUDIES[name].cells(scale)
    return {(cell.get("margin"), cell.get("bandwidth")) for cell in cells if cell.objective == objective}


def test_studies_are_the_papers_tables() -> None:
    cells = STUDIES["main"].cells(PAPER)
    assert {(cell.model, cell.objective) for cell in cells} == {(s.model, s.method) for s in paper.scores("main")}
    assert len(cells) == 30 and bands("main", scale=PAPER) == {(1.5, 0.8)}
    widths, margins = (0.1, 0.5, 1, 2, 3, 4, 5, 6), (0, 0.5, 1, 2, 3, 4, 5, 6)
    expected = {(m, tau) for m in (1, 6) for tau in widths} | {(m, tau) for tau in (1, 6) for m in margins}
    assert bands("ablation") == expected
    assert Cell(model="lab", objective="sft") in STUDIES["ablation"].cells(LAB)
    for objective in ("trim", "trim-e", "trim-h"):
        assert bands("half-trims", objective) == {(m, 1) for m in range(1, 6)}


def test_cells_are_shared_and_bases_have_one_seed() -> None:
    of = {name: set(study.cells(LAB, seeds=2)) for name, study in STUDIES.items()}
    assert of["main"] == of["passes"] == of["gaps"]
    assert of["weights"] == of["gradient-mass"] == of["categories"] == {Cell(model="lab", objective="base")}
    cells = STUDIES["main"].cells(LAB, seeds=3)
    assert len(cells) == 1 + 4 * 3 == len(set(cells))
    assert [cell.seed for cell in cells] == [0] + [seed for seed in range(3) for _ in range(4)]
    assert STUDIES["main"].cells(ScaleOptions(seeds=3).to_scale()) == cells
    assert {cell.seed for cell in STUDIES["main"].cells(LAB, seeds=[4]) if not cell.is_base} == {4}


def test_one_model_studies_take_the_papers_where_it_is_there() -> None:
    llama = ScaleOptions(scale="paper", models=("Llama3.2-3B",)).to_scale()
    for name, scale, models in (
        ("ablation", PAPER, {"Qwen2.5-Math-1.5B"}),
        ("passes", PAPER, {"Qwen2.5-Math-1.5B", "Llama3.1-8B"}),
        ("passes", llama, {"Llama3.2-3B"}),
    ):
        assert {cell.model for cell in STUDIES[name].cells(scale)} == models


def test_studies_name_the_papers_tables() -> None:
    named = {name: in_the_paper(study) for name, study in STUDIES.items()}
    assert named["main"] == "Table 1" and named["passes"] == "Figure 2" and named["half-trims"] == "Table 2, Table 6"
    assert [name for name, where in named.items() if not where] == ["objectives"]  # of our own
