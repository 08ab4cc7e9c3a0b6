// One problem opened: its text, and what the two runs wrote, by vote. Text goes into the page as text only.
const element = (name, className = "", ...children) => {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
};
const counted = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

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
    const found = problems[place]?.runs[run];
    if (!found && data.unrecorded[run]?.includes(data.problems[place][0])) {
      column.append(element("p", "note", "What it wrote is not known: its directory has no samples.jsonl, only the counts."));
      return column;
    }
    if (!found) {
      const where = element("code", "", `${folder}/eval/${data.columns[data.problems[place][0]]}/samples.jsonl`);
      column.append(element("p", "note", "Its answers are left out of this page; they are in ", where, "."));
      return column;
    }
    const drawn = found.samples.filter((sample) => sample[0] >= 0);
    column.append(element("p", "note", `${drawn.filter((sample) => sample[1] === "correct").length} of ${drawn.length} right`));
    column.append(...sampleBlocks(found.samples.filter((sample) => sample[0] < 0)));
    const order = found.votes.map((vote, number) => ({ vote, number })).sort((p, q) => q.vote[1] - p.vote[1]);
    const tied = found.votes.filter((vote) => vote[3]).length > 1;
    for (const { vote, number } of order) column.append(voteBlock(vote, drawn.filter((sample) => sample[2] === number), tied));
    const silent = drawn.filter((sample) => sample[2] === null);
    if (silent.length) column.append(element("div", "cluster", element("p", "vote", `${counted(silent.length, "sample")} without an answer`), ...sampleBlocks(silent)));
    if (!found.recorded) column.append(element("p", "note", "This evaluation did not record who voted together: equal answers are grouped by their text."));
    return column;
  };

  const known = problems[place];
  const answer = known ? element("span", "voted", rendered ? formula(strings[known.answer[0]], false, strings[known.answer[0]]) : element("code", "", strings[known.answer[0]])) : "";
  return element("div", "opened",
    ...(known ? written(known.text) : []),
    ...(known ? [element("p", "", "Answer: ", answer)] : []),
    element("div", "columns", ...sides.map(side)));
};
