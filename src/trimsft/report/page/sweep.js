// The heatmap of a sweep: its cells become buttons that set margin and bandwidth of the token viewer.
const sweepData = document.getElementById("data-sweep");
const sweepCells = [...document.querySelectorAll(".heat td[data-margin]")];

const chooseCell = (cell) => {
  const { objective, margin, bandwidth } = cell.dataset;
  for (const other of sweepCells) other.firstChild.setAttribute("aria-pressed", String(other === cell));
  document.dispatchEvent(new CustomEvent("trimsft:setting", { detail: { objective, margin: Number(margin), bandwidth: Number(bandwidth) } }));
  document.getElementById("sweep-chosen").textContent = `Set: ${objective}, margin ${Number(margin)}, bandwidth ${Number(bandwidth)}.`;
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

const sweepCsv = () => {
  const quote = (text) => `"${(/^[=+\-@]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`; // spreadsheets run formulas
  const { metric, points } = JSON.parse(sweepData.textContent);
  const names = ["objective", "margin", "bandwidth", "value", "low", "high", "seeds"];
  const lines = points.map((point) => [quote(metric), ...names.map((name) => point[name]), quote(point.run)].join(","));
  return [["metric", ...names, "run"].join(","), ...lines].map((line) => `${line}\r\n`).join("");
};

if (sweepCells.length) {
  for (const cell of sweepCells) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...cell.childNodes);
    button.tabIndex = cell === cell.closest("tbody").querySelector("td[data-margin]") ? 0 : -1;
    button.addEventListener("click", () => chooseCell(cell));
    button.addEventListener("keydown", (event) => {
      const next = walk[event.key] && neighbour(cell, walk[event.key]);
      if (!next) return;
      event.preventDefault();
      goToCell(next);
    });
    cell.append(button);
  }
  document.getElementById("sweep-csv").addEventListener("click", () => {
    const address = URL.createObjectURL(new Blob([sweepCsv()], { type: "text/csv" }));
    Object.assign(document.createElement("a"), { href: address, download: "sweep.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
  });
  for (const part of document.querySelectorAll(".sweep-script")) part.hidden = false;
}
