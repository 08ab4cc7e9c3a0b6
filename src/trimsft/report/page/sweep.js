// The heatmap of a sweep: its cells become buttons that set margin and bandwidth of the token viewer.
const sweepCells = [...document.querySelectorAll(".heat td[data-margin]")];

const chooseCell = (cell) => {
  const { objective, margin, bandwidth } = cell.dataset;
  for (const other of sweepCells) other.firstChild.setAttribute("aria-pressed", String(other === cell));
  document.dispatchEvent(new CustomEvent("trimsft:setting", { detail: { objective, margin: Number(margin), bandwidth: Number(bandwidth) } }));
  byId("sweep-chosen").textContent = `Set: ${objective}, margin ${Number(margin)}, bandwidth ${Number(bandwidth)}.`;
  if (byId("viewer")) goToSection("tokens");
};

// one stop of the tab key for each table; arrows go from cell to cell, over what was not tried
const walk = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
const neighbour = (cell, [down, across]) => {
  const rows = [...cell.closest("tbody").rows];
  let [row, column] = [rows.indexOf(cell.parentElement) + down, cell.cellIndex + across];
  while (rows[row]?.cells[column] && column > 0) {
    if (rows[row].cells[column].dataset.margin !== undefined) return rows[row].cells[column];
    [row, column] = [row + down, column + across];
  }
  return null;
};
const goToCell = (cell) => {
  for (const button of cell.closest("tbody").querySelectorAll("button")) button.tabIndex = -1;
  cell.firstChild.tabIndex = 0;
  cell.firstChild.focus();
};

if (sweepCells.length) {
  for (const cell of sweepCells) {
    const tabIndex = cell === cell.closest("tbody").querySelector("td[data-margin]") ? 0 : -1;
    const button = make("button", { type: "button", tabIndex }, ...cell.childNodes);
    button.addEventListener("click", () => chooseCell(cell));
    button.addEventListener("keydown", (event) => {
      const next = walk[event.key] && neighbour(cell, walk[event.key]);
      if (!next) return;
      event.preventDefault();
      goToCell(next);
    });
    cell.append(button);
  }
  byId("sweep-csv").addEventListener("click", () => {
    const { metric, points } = JSON.parse(byId("data-sweep").textContent);
    const names = ["objective", "margin", "bandwidth", "value", "low", "high", "seeds", "run"];
    const rows = points.map((point) => [metric, ...names.map((name) => point[name])]);
    download("sweep.csv", "text/csv", csv([["metric", ...names], ...rows]));
  });
  for (const part of document.querySelectorAll(".sweep-script")) part.hidden = false;
}
