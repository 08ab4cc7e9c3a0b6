// The tab Answers: the problems that changed between two runs, one line each, and one of them opened: text, votes, samples.
// What models wrote goes into the page as text only, or as formulas that mathematics.js builds node by node.
const known = page.answers;
const element = (name, className = "", ...children) => make(name, { className }, ...children);
const written = (text) => (typeof readable === "function" ? readable(text) : text);
const math = (text) => (typeof formula === "function" && /[\\^_]/.test(text) ? formula(text, false, text) : text);

// ---- where a wrong answer leaves a right one
const stepsOf = (text) => {
  const steps = text.split(/\n+|(?<=[.!?;])\s+/).map((step) => step.trim()).filter(Boolean);
  const counting = steps.filter((step) => /[0-9]/.test(step));
  return counting.length ? counting : steps;
};
const sharedBy = (one, other) => {
  let count = 0;
  while (count < Math.min(one.length, other.length) && one[count] === other[count]) count++;
  return count;
};
const cutAround = (step, place) => (place > 60 ? `…${step.slice(place - 30, place + 90)}` : step.slice(0, 120)); // where it differs
// {wrong, right}: the first step in which a wrong sample of one run differs from a right one of the other
const partingOf = (lost, won) => {
  const texts = (answers, right) => answers.samples.filter(([, status]) => (status === "correct") === right).map((sample) => stepsOf(known.strings[sample[4]]));
  let best = null;
  for (const one of texts(lost, false)) {
    for (const other of texts(won, true)) {
      const shared = sharedBy(one, other);
      if (!best || shared > best.shared) best = { shared, wrong: one[shared] ?? "(ends)", right: other[shared] ?? "(ends)" };
    }
  }
  if (!best) return null;
  const place = sharedBy(best.wrong, best.right);
  const word = best.wrong.lastIndexOf(" ", place) + 1; // of the wrong one, what is different
  return { wrong: best.wrong.slice(word, word + 60), right: cutAround(best.right, place) };
};

// ---- one problem opened
const cutNote = (leftOut) => (leftOut ? [element("p", "note", `${counted(leftOut, "more character")} not shown.`)] : []);
const sampleBlocks = (samples) => { // equal texts once
  const groups = Object.values(Object.groupBy(samples, ([, status, , , text]) => `${status}/${text}`));
  return groups.map((group) => {
    const [, status, , tokens, text, leftOut] = group[0];
    const numbers = group.map(([number]) => number + 1);
    const name = numbers[0] < 1 ? "greedy" : `sample${numbers.length > 1 ? "s" : ""} ${numbers.join(", ")}${numbers.length > 1 ? ", word for word the same" : ""}`;
    const right = status === "correct";
    return element("div", `answer ${right ? "right" : "wrong"}`,
      element("p", "grade", `${right ? "✓" : "✗"} ${name}: ${status.replaceAll("_", " ")}${tokens === null ? "" : `, ${counted(tokens, "token")}`}`),
      element("div", "written", written(known.strings[text])), ...cutNote(leftOut));
  });
};
const sideOfRun = (place, run) => {
  const column = element("div", "side", element("h2", "", known.runs[run]));
  const answers = known.answers[place]?.runs[run];
  if (!answers) {
    column.append(element("p", "note", `Its texts are not on this page; where they were kept, they are in eval/${known.columns[known.problems[place][0]]}/samples.jsonl of the run.`));
    return column;
  }
  const drawn = answers.samples.filter(([number]) => number >= 0);
  column.append(element("p", "note", `${drawn.filter(([, status]) => status === "correct").length} of ${drawn.length} right`), ...sampleBlocks(answers.samples.filter(([number]) => number < 0)));
  const order = answers.votes.map((vote, number) => ({ vote, number })).sort((p, q) => q.vote[1] - p.vote[1]);
  const tied = answers.votes.filter((vote) => vote[3]).length > 1;
  for (const { vote: [answer, size, right, wins], number } of order) {
    const heading = element("p", right ? "right" : "wrong", `${right ? "✓" : "✗"} ${counted(size, "vote")} for `, math(known.strings[answer]), wins ? (tied ? " (tied for most)" : " (wins)") : "");
    column.append(element("div", "votes", heading, ...sampleBlocks(drawn.filter((sample) => sample[2] === number))));
  }
  const silent = drawn.filter((sample) => sample[2] === null);
  if (silent.length) column.append(element("div", "votes", element("p", "wrong", `${counted(silent.length, "sample")} without an answer`), ...sampleBlocks(silent)));
  return column;
};

// ---- the list of problems
const KINDS = {
  changed: ["changed", ({ differs }) => differs],
  gained: ["with more samples right", ({ change }) => change > 0],
  lost: ["with fewer samples right", ({ change }) => change < 0],
  greedy: ["with another greedy result", ({ before, after }) => before[3] !== after[3]],
  all: ["all", () => true],
};
const view = { a: 0, b: 0, only: "changed", problem: null };
const keyOf = ([column, number]) => `${known.columns[column]}/${number}`;
const changes = () => known.problems.map((problem, place) => {
  const [before, after] = [problem[3 + view.a], problem[3 + view.b]];
  if (!before || !after) return null;
  const share = ([right, samples]) => (samples ? right / samples : 0);
  const change = share(after) - share(before);
  return { problem, place, before, after, change, differs: change !== 0 || before[2] !== after[2] || before[3] !== after[3] };
}).filter(Boolean);
const mark = (value) => (value === null ? "–" : value === 1 ? "✓" : value > 0 ? "tie" : "✗");
const openProblem = ({ place, problem }, line) => {
  const texts = known.answers[place];
  for (const other of byId("lines").querySelectorAll("[aria-current]")) other.removeAttribute("aria-current");
  line.setAttribute("aria-current", "true");
  view.problem = keyOf(problem);
  byId("opened").replaceChildren(
    element("p", "note", `${problem[2]}, ${known.columns[problem[0]]}, no. ${problem[1]}`),
    ...(texts ? [element("div", "written", written(known.strings[texts.text[0]])), ...cutNote(texts.text[1]), element("p", "", "Answer: ", math(known.strings[texts.answer[0]]))] : []),
    element("div", "sides", sideOfRun(place, view.a), sideOfRun(place, view.b)));
  remember({ problem: view.problem });
};
const lineOf = (flip) => {
  const { problem, place, before, after, change, differs } = flip;
  const texts = known.answers[place];
  const counts = before[1] === after[1] ? `${before[0]} → ${after[0]} of ${after[1]}` : `${before[0]}/${before[1]} → ${after[0]}/${after[1]}`;
  const ways = [[2, "vote"], [3, "greedy"]].filter(([at]) => before[at] !== after[at]).map(([at, name]) => `${name} ${mark(before[at])} → ${mark(after[at])}`);
  const [lost, won] = change < 0 || (change === 0 && before[3] > after[3]) ? [view.b, view.a] : [view.a, view.b];
  const parting = differs && texts?.runs[lost] && texts.runs[won] ? partingOf(texts.runs[lost], texts.runs[won]) : null;
  const line = make("button", { type: "button", className: "problem" },
    element("span", change > 0 ? "right" : change < 0 ? "wrong" : "", counts),
    element("span", "parting", ...(parting ? [element("bdi", "right", parting.right), " ", element("bdi", "wrong", `✗ ${parting.wrong}`)] : [ways.join(", ")])),
    element("span", "asked", texts ? known.strings[texts.text[0]].slice(0, 120) : problem[2]));
  line.addEventListener("click", () => openProblem(flip, line));
  return line;
};
const drawProblems = () => {
  const all = changes();
  const kept = all.filter(KINDS[view.only][1]).sort((p, q) => Math.abs(q.change) - Math.abs(p.change) || p.place - q.place);
  const at = Math.max(0, kept.findIndex(({ problem }) => keyOf(problem) === view.problem));
  const lines = kept.map(lineOf);
  byId("lines").replaceChildren(...lines);
  const count = (test) => all.filter(test).length;
  byId("counts").textContent = `${count(KINDS.changed[1])} of ${counted(all.length, "problem")} changed: ${count(KINDS.gained[1])} got more samples right, ${count(KINDS.lost[1])} fewer; the greedy result of ${count(KINDS.greedy[1])} changed.`;
  if (lines.length) {
    openProblem(kept[at], lines[at]);
    lines[at].tabIndex = 0;
  } else byId("opened").replaceChildren(element("p", "note", "None."));
};
const startAnswers = async () => {
  if (known.problems) return;
  const packed = await (await inflated(known.packed)).json();
  Object.assign(known, packed);
  const query = chosen();
  const place = (name, otherwise) => (known.evaluated.includes(known.runs.indexOf(query.get(name))) ? known.runs.indexOf(query.get(name)) : otherwise);
  Object.assign(view, { a: place("a", known.pair[0]), b: place("b", known.pair[1]), problem: query.get("problem") });
  if (Object.hasOwn(KINDS, query.get("only") ?? "")) view.only = query.get("only");
  const select = (label, options, value, change) => {
    const made = make("select", {}, ...options.map(([key, text]) => make("option", { value: key, textContent: text, selected: key === value })));
    made.addEventListener("change", () => {
      change(made.value);
      view.problem = null;
      remember({ a: known.runs[view.a], b: known.runs[view.b], only: view.only });
      drawProblems();
    });
    return make("label", {}, `${label} `, made);
  };
  const runs = known.evaluated.map((run) => [run, known.runs[run]]);
  byId("pair").append(select("From", runs, view.a, (run) => { view.a = Number(run); }), select("to", runs, view.b, (run) => { view.b = Number(run); }),
    select("show", Object.entries(KINDS).map(([key, [name]]) => [key, name]), view.only, (only) => { view.only = only; }));
  rove(byId("lines"), ".problem");
  byId("problems").hidden = false;
  drawProblems();
  document.documentElement.dataset.answers = "ready";
};
if (known) byId("answers").addEventListener("shown", startAnswers);

readTab();
