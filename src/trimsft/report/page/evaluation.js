// Two chosen runs: differences, the problems that flipped, and exports. The state stands in the address, under keys "e.".
const holder = byId("data-evaluation");
const data = holder && JSON.parse(holder.textContent);
const element = (name, className = "", ...children) => make(name, className ? { className } : {}, ...children);
const counted = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

const scoreRows = () => Object.entries(data.scores).flatMap(([metric, rows]) =>
  rows.flatMap(([label, ...cells]) => cells.map((cell, column) => [metric, label, data.columns[column], ...(cell ?? [null, null, null])])));

const startScores = () => {
  byId("scores-csv").addEventListener("click", () =>
    download("scores.csv", "text/csv", csv([["metric", "run", "benchmark", "percent", "low", "high"], ...scoreRows()])));
  byId("scores-svg").addEventListener("click", () =>
    download("scores.svg", "image/svg+xml", standaloneSvg(document.querySelector("#scores figure svg"))));
};

// ---- where a wrong answer leaves a right one (as answers.py has it)
const ASKED = 160; // characters of a problem in the list
const shortened = (text) => (text.length > ASKED ? `${text.slice(0, ASKED - 1).trimEnd()}…` : text);
const stepsOf = (text) => {
  const steps = text.split(/\n+|(?<=[.!?;])\s+/).map((step) => step.trim()).filter(Boolean);
  const counting = steps.filter((step) => /[0-9]/.test(step));
  return counting.length ? counting : steps;
};
const sharedSteps = (one, other) => {
  let count = 0;
  while (count < Math.min(one.length, other.length) && one[count] === other[count]) count++;
  return count;
};

// a step as far as it is shown, from a little before the place where it differs
const LONGEST_STEP = 240;
const aroundPlace = (step, place) => {
  const start = place > LONGEST_STEP / 2 ? Math.max(0, place - LONGEST_STEP / 4) : 0;
  return `${start ? "…" : ""}${step.slice(start, start + LONGEST_STEP)}${start + LONGEST_STEP < step.length ? "…" : ""}`;
};

// {wrong, right}: the first step in which a wrong sample of one run differs from a right one of the other
const partingOf = (lost, won) => {
  const { strings } = data.answers;
  const texts = (answers, right) => answers.samples.filter(([, status]) => (status === "correct") === right).map((sample) => stepsOf(strings[sample[4]]));
  let best = null;
  for (const one of texts(lost, false)) {
    for (const other of texts(won, true)) {
      const shared = sharedSteps(one, other);
      if (!best || shared > best.shared) best = { shared, wrong: one[shared] ?? "", right: other[shared] ?? "" };
    }
  }
  if (!best) return null;
  const place = sharedSteps(best.wrong, best.right);
  return { wrong: aroundPlace(best.wrong, place), right: aroundPlace(best.right, place) };
};

// ---- two runs
const KINDS = {
  changed: ["changed in any way", (flip) => flip.differs],
  gained: ["more samples right", (flip) => flip.change > 0],
  lost: ["fewer samples right", (flip) => flip.change < 0],
  vote: ["majority flipped", (flip) => flip.vote !== 0],
  greedy: ["greedy flipped", (flip) => flip.greedy !== 0],
  all: ["all problems", () => true],
};
const STEP = 30;

const startPairs = () => {
  const [first, second, benchmark, only] = ["run-a", "run-b", "flip-benchmark", "flip-only"].map(byId);
  const option = (value, textContent) => make("option", { value, textContent });
  for (const select of [first, second]) select.append(...data.evaluated.map((run) => option(run, data.runs[run])));
  const benchmarks = [...new Set(data.problems.map(([at]) => at))];
  benchmark.append(option("", "all benchmarks"), ...benchmarks.map((at) => option(at, data.columns[at])));
  only.append(...Object.entries(KINDS).map(([key, [name]]) => option(key, name)));

  const start = { a: data.pair[0], b: data.pair[1], on: "", only: "changed", problem: "", source: false };
  let state = { ...start };
  let most = STEP;

  // ---- the address
  const keys = {
    a: { write: (run) => data.runs[run], read: (text) => (data.evaluated.includes(data.runs.indexOf(text)) ? data.runs.indexOf(text) : null) },
    b: { write: (run) => data.runs[run], read: (text) => (data.evaluated.includes(data.runs.indexOf(text)) ? data.runs.indexOf(text) : null) },
    on: { write: (at) => data.columns[at], read: (text) => (benchmarks.includes(data.columns.indexOf(text)) ? String(data.columns.indexOf(text)) : null) },
    only: { write: String, read: (text) => (Object.hasOwn(KINDS, text) ? text : null) },
    problem: { write: String, read: (text) => (data.problems.some((problem) => problemKey(problem) === text) ? text : null) },
    source: { write: () => "1", read: (text) => text === "1" || null },
  };
  const problemKey = ([at, number]) => `${data.columns[at]}/${number}`;
  const inAddress = () => new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
  const read = () => {
    const address = inAddress();
    state = { ...start };
    for (const [name, { read: parse }] of Object.entries(keys)) {
      const text = address.get(`e.${name}`);
      state[name] = (text !== null ? parse(text) : null) ?? start[name];
    }
  };
  const write = () => {
    const address = inAddress();
    const before = address.toString();
    for (const [name, { write: format }] of Object.entries(keys)) {
      if (state[name] === start[name]) address.delete(`e.${name}`);
      else address.set(`e.${name}`, format(state[name]));
    }
    if (address.toString() !== before) history.replaceState(history.state, "", `#${address}`);
  };

  // ---- differences
  const signed = (value) => (Math.abs(value) < 0.05 ? "0.0" : `${value > 0 ? "+" : "−"}${Math.abs(value).toFixed(1)}`);
  const drawDifferences = () => {
    const [low, high] = [Math.min(state.a, state.b), Math.max(state.a, state.b)];
    const table = data.differences[`${low},${high}`];
    const turned = state.a > state.b;
    const cell = (numbers) => {
      const made = element("td", "figure");
      if (!numbers) { made.append("–"); return made; }
      const [value, from, to, p, marked] = turned ? [-numbers[0], -numbers[2], -numbers[1], ...numbers.slice(3)] : numbers;
      made.append(signed(value), marked ? (value > 0 ? " ↑ " : " ↓ ") : " ", element("span", "spread", `[${signed(from)}, ${signed(to)}]`));
      made.title = `p = ${p} (sign-flip test, Holm)`;
      if (marked) made.classList.add("best");
      return made;
    };
    const rows = table ? data.metrics.map((metric, place) => element("tr", "", make("th", { scope: "row" }, metric), ...table[place].map(cell))) : [];
    byId("difference-rows").replaceChildren(...rows);
    byId("differences").hidden = !table;
    byId("not-compared").hidden = Boolean(table) || state.a === state.b;
    byId("compare-command").textContent = `trimsft compare ${[state.a, state.b].map((run) => shellWord(data.folders[run])).join(" ")}`;
    byId("pair-name").textContent = `${data.runs[state.b]} minus ${data.runs[state.a]}`;
  };

  // ---- flips
  const flipOf = (problem, place) => {
    const [before, after] = [problem[3 + state.a], problem[3 + state.b]];
    if (!before || !after) return null;
    const share = ([right, samples]) => (samples ? right / samples : 0);
    const flipped = (p, q) => (p === null || q === null ? 0 : Math.sign((q > 0.5) - (p > 0.5)));
    const change = share(after) - share(before);
    const differs = change !== 0 || before[2] !== after[2] || before[3] !== after[3];
    return { problem, place, before, after, change, differs, vote: flipped(before[2], after[2]), greedy: flipped(before[3], after[3]) };
  };
  const selected = () => {
    const flips = data.problems.map(flipOf).filter((flip) => flip && (state.on === "" || String(flip.problem[0]) === state.on));
    const kept = flips.filter(KINDS[state.only][1]).sort((p, q) => Math.abs(q.change) - Math.abs(p.change) || p.place - q.place);
    return { flips, kept };
  };
  const mark = (value) => (value === null ? "–" : value === 1 ? "✓" : value > 0 ? "tie" : "✗");
  const from = (p, q) => (mark(p) === mark(q) ? mark(p) : `${mark(p)} → ${mark(q)}`);
  const parted = ({ place, change, greedy }) => {
    const lostIsB = (change || greedy) < 0;
    const [lost, won] = lostIsB ? [state.b, state.a] : [state.a, state.b];
    const runs = data.answers.problems[place]?.runs;
    const found = (change || greedy) && runs?.[lost] && runs[won] ? partingOf(runs[lost], runs[won]) : null;
    if (!found) return [];
    const part = (kind, sign, run, step) => element("span", `part ${kind}`, `${sign} ${data.runs[run]}: `, element("bdi", "", step || "(ends)"));
    const note = element("span", "note", "The first step that differs:");
    return [element("span", "parting", note, " ", part("right", "✓", won, found.right), " ", part("wrong", "✗", lost, found.wrong))];
  };
  const summary = (flip) => {
    const { problem, place, before, after, change, vote, greedy } = flip;
    const [at, number, id] = problem;
    const count = before[1] === after[1] ? `${before[0]} → ${after[0]} of ${after[1]}` : `${before[0]} of ${before[1]} → ${after[0]} of ${after[1]}`;
    const cell = (className, label, text) => element("span", className, element("span", "label", `${label} `), text);
    const direction = change > 0 ? "up" : change < 0 ? "down" : "";
    const shift = before[1] === after[1] ? after[0] - before[0] : change;
    const shown = shift === 0 ? "0" : `${shift > 0 ? "+" : "−"}${Math.abs(Number(shift.toFixed(2)))}`;
    const asked = data.answers.problems[place];
    const name = asked ? [element("span", "asked", shortened(data.answers.strings[asked.text[0]]) || id), element("span", "note", ` ${id}, ${data.columns[at]}, no. ${number}`)] : [id, element("span", "note", ` ${data.columns[at]}, no. ${number}`)];
    return element("summary", "flip-line",
      element("span", "flip-name", ...name),
      cell("count", "right", count), element("span", `shift ${direction}`, shown),
      cell(vote ? "flipped" : "", "vote", from(before[2], after[2])), cell(greedy ? "flipped" : "", "greedy", from(before[3], after[3])), ...parted(flip));
  };
  const side = (run) => ({ run, label: data.runs[run], folder: data.folders[run] });
  const details = (flip) => {
    const made = element("details", "flip", summary(flip));
    const fill = () => { if (made.children.length < 2) made.append(problemBody(data, flip.place, [side(state.a), side(state.b)], !state.source)); };
    const key = problemKey(flip.problem);
    if (key === state.problem) { made.open = true; made.dataset.chosen = ""; fill(); }
    made.addEventListener("toggle", () => {
      made.toggleAttribute("data-chosen", made.open);
      if (made.open) fill();
      if (made.open) state.problem = key;
      else if (state.problem === key) state.problem = "";
      write();
    });
    return made;
  };
  const tell = (flips, kept) => {
    const count = (test) => flips.filter(test).length;
    const ways = (name) => `${count((flip) => flip[name])} (${count((flip) => flip[name] > 0)} to right, ${count((flip) => flip[name] < 0)} to wrong)`;
    const pair = `${data.runs[state.a]} → ${data.runs[state.b]}`;
    if (state.a === state.b) {
      byId("flip-counts").textContent = `${data.runs[state.a]} is compared with itself: choose another run.`;
      return;
    }
    byId("flip-counts").textContent = flips.length === 0 ? `${pair} have no problem in common whose counts are recorded.` : `${pair} on ${counted(flips.length, "problem")}: ` +
      `${count((flip) => flip.differs)} changed; more samples right on ${count((flip) => flip.change > 0)}, fewer on ${count((flip) => flip.change < 0)}; ` +
      `the majority flipped on ${ways("vote")}, greedy on ${ways("greedy")}. Shown: ${Math.min(most, kept.length)} of ${kept.length}, largest change first.`;
  };
  const drawFlips = () => {
    const { flips, kept } = selected();
    const linked = kept.findIndex((flip) => problemKey(flip.problem) === state.problem);
    most = Math.max(most, linked + 1); // a link may lead further down
    byId("flip-list").replaceChildren(...kept.slice(0, most).map(details));
    byId("flip-more").hidden = kept.length <= most;
    tell(flips, kept);
  };
  const draw = () => {
    Object.assign(first, { value: state.a });
    Object.assign(second, { value: state.b });
    Object.assign(benchmark, { value: state.on });
    Object.assign(only, { value: state.only });
    byId("mathematics").checked = !state.source;
    drawDifferences();
    drawFlips();
  };
  const change = (changed) => {
    state = { ...state, ...changed };
    most = STEP;
    write();
    draw();
  };

  first.addEventListener("change", () => change({ a: Number(first.value) }));
  second.addEventListener("change", () => change({ b: Number(second.value) }));
  byId("swap").addEventListener("click", () => change({ a: state.b, b: state.a }));
  benchmark.addEventListener("change", () => change({ on: benchmark.value }));
  only.addEventListener("change", () => change({ only: only.value }));
  byId("mathematics").addEventListener("change", (event) => change({ source: !event.target.checked }));
  byId("flip-more").addEventListener("click", () => { most += STEP; drawFlips(); });
  byId("flips-csv").addEventListener("click", () => {
    const sides = ["a", "b"].flatMap((side) => ["run", "right", "samples", "majority", "greedy"].map((name) => `${side}_${name}`));
    const rows = selected().kept.map(({ problem, before, after }) =>
      [data.columns[problem[0]], problem[1], problem[2], data.runs[state.a], ...before, data.runs[state.b], ...after]);
    download("flips.csv", "text/csv", csv([["benchmark", "number", "id", ...sides], ...rows]));
  });
  window.addEventListener("beforeprint", () => { // on paper, what the reader opened and no more
    for (const flip of document.querySelectorAll("details.flip")) flip.open = "chosen" in flip.dataset;
  });
  window.addEventListener("hashchange", () => { read(); draw(); });

  read();
  draw();
  const target = state.problem && document.querySelector("details.flip[open]");
  if (target) target.scrollIntoView();
};

// ---- one problem opened: its text, and what the two runs wrote, by vote; text goes into the page as text only
// answers.problems[place]: {text, answer: [string, characters left out], runs: {run: {recorded, votes, samples}}}
const problemBody = (data, place, sides, rendered) => {
  const { strings, problems } = data.answers;
  const text = (index) => (rendered ? readable(strings[index]) : strings[index]);
  const written = ([index, leftOut]) => {
    const box = element(rendered ? "div" : "pre", "written", text(index));
    const note = leftOut ? [element("p", "note", `${counted(leftOut, "more character")} not shown.`)] : [];
    return [box, ...note];
  };

  const sampleName = (numbers) => {
    if (numbers[0] < 0) return "greedy";
    return numbers.length === 1 ? `sample ${numbers[0] + 1}` : `samples ${numbers.map((n) => n + 1).join(", ")}, word for word the same`;
  };
  const sampleBlocks = (samples) => { // equal texts once
    const groups = new Map();
    for (const sample of samples) {
      const key = `${sample[1]}/${sample[4]}`;
      groups.set(key, [...(groups.get(key) ?? []), sample]);
    }
    return [...groups.values()].map((group) => {
      const [, status, , tokens, index, leftOut] = group[0];
      const right = status === "correct";
      const length = tokens === null ? "" : `, ${counted(tokens, "token")}`;
      const grade = `${right ? "✓" : "✗"} ${sampleName(group.map((sample) => sample[0]))}: ${status.replaceAll("_", " ")}${length}`;
      return element("div", `answer ${right ? "right" : "wrong"}`, element("p", "grade", grade), ...written([index, leftOut]));
    });
  };

  const voteBlock = ([answer, size, right, wins], samples, tied) => {
    const heading = element("p", `vote ${right ? "right" : "wrong"}`, `${right ? "✓" : "✗"} ${counted(size, "vote")} for `);
    heading.append(element("span", "voted", rendered ? formula(strings[answer], false, strings[answer]) : element("code", "", strings[answer])));
    if (wins) heading.append(element("span", "elected", tied ? "tied for most" : "wins"));
    return element("div", `cluster${wins ? " winning" : ""}`, heading, ...sampleBlocks(samples));
  };

  const side = ({ run, label, folder }) => {
    const column = element("div", "side", element("h4", "", label));
    const answers = problems[place]?.runs[run];
    if (!answers && data.unrecorded[run]?.includes(data.problems[place][0])) {
      column.append(element("p", "note", "What it wrote is not known: its directory has no samples.jsonl, only the counts."));
      return column;
    }
    if (!answers) {
      const where = element("code", "", `${folder}/eval/${data.columns[data.problems[place][0]]}/samples.jsonl`);
      column.append(element("p", "note", "Its answers are left out of this page; they are in ", where, "."));
      return column;
    }
    const drawn = answers.samples.filter((sample) => sample[0] >= 0);
    column.append(element("p", "note", `${drawn.filter((sample) => sample[1] === "correct").length} of ${drawn.length} right`));
    column.append(...sampleBlocks(answers.samples.filter((sample) => sample[0] < 0)));
    const order = answers.votes.map((vote, number) => ({ vote, number })).sort((p, q) => q.vote[1] - p.vote[1]);
    const tied = answers.votes.filter((vote) => vote[3]).length > 1;
    for (const { vote, number } of order) column.append(voteBlock(vote, drawn.filter((sample) => sample[2] === number), tied));
    const silent = drawn.filter((sample) => sample[2] === null);
    if (silent.length) column.append(element("div", "cluster", element("p", "vote", `${counted(silent.length, "sample")} without an answer`), ...sampleBlocks(silent)));
    if (!answers.recorded) column.append(element("p", "note", "This evaluation did not record who voted together: equal answers are grouped by their text."));
    return column;
  };

  const known = problems[place];
  const answer = known ? element("span", "voted", rendered ? formula(strings[known.answer[0]], false, strings[known.answer[0]]) : element("code", "", strings[known.answer[0]])) : "";
  return element("div", "opened",
    ...(known ? written(known.text) : []),
    ...(known ? [element("p", "", "Answer: ", answer)] : []),
    element("div", "columns", ...sides.map(side)));
};

if (data && data.evaluated.length) {
  startScores();
  if (data.pair) startPairs();
  for (const part of document.querySelectorAll(".evaluation-script")) part.hidden = false;
  for (const part of document.querySelectorAll(".evaluation-plain")) part.hidden = true;
}
