"""How fast report.html opens and recolours in Chromium, and how large it is; writes JSON.

    python benchmarks/viewer/measure.py --out results/viewer.json
    python benchmarks/viewer/measure.py --examples 4 --tokens 50 --corpus 1000 --repeats 1 --out /tmp/tiny.json

The page shows `--examples` examples of `--tokens` tokens in two runs, top-5 included, of a corpus of `--corpus` tokens.
The tables are made up: words by Zipf's law out of 30,000, gaps as of a base model (a peak near 0, most mastered). Times
are medians of `--repeats`, in a window of 1400 x 1000; "least" is what other work on the machine disturbs least:
  open       from the start of the navigation to the viewer's own mark "ready"
  recolour   one `input` event of the margin's field, style and layout that follow from it included, at the first
             example and after scrolling to the middle; by difference there is a setting B, too
  sort       one `change` of the order of the examples, style and layout included
The targets: 2 s, 50 ms, 10 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[2]))  # the driver is that of the tests

from benchmarks.measuring import machine
from tests.report.page.browser import Browser, wait
from trimsft.report.page.build import write_report
from trimsft.tokens.table import schema_with, writing

WORDS = 30_000
TOP = 5
CHANGE = """
const [name, event, values, turns] = arguments;
const field = document.getElementById(name);
const times = [];
for (let turn = 0; turn < turns; turn++) {
  field.value = values[turn % values.length];
  const start = performance.now();
  field.dispatchEvent(new Event(event, {bubbles: true}));
  document.body.offsetHeight;
  getComputedStyle(document.querySelector(".t")).backgroundColor;
  times.push(performance.now() - start);
}
return times;
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--corpus", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        page, seconds = make_page(Path(folder), options)
        found = measure(page, options.repeats)
        found |= {"megabytes": page.stat().st_size / 1e6, "seconds_to_write": seconds}
    settings = {name: value for name, value in vars(options).items() if name != "out"}
    content = {
        "machine": {**machine(), "load": round(os.getloadavg()[0], 1)},
        "settings": {**settings, "runs": 2, "top": TOP},
        "viewer": found,
    }
    options.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(content, indent=1))


def make_page(folder: Path, options: argparse.Namespace) -> tuple[Path, float]:
    rng = np.random.default_rng(0)
    count = max(options.corpus, options.examples * options.tokens)
    tokens = rng.zipf(1.3, count) % WORDS
    hard = rng.random(count) < 0.35
    gap = np.where(hard, rng.normal(0.5, 2.5, count), rng.gamma(4.0, 2.8, count))
    runs = {}
    for name, moved in (("Base", 0.0), ("Trained", 0.8)):
        path = folder / f"{name}.parquet"
        write_table(path, tokens, gap + rng.normal(moved, 1, count), options.tokens, rng)
        runs[name] = path
    start = time.perf_counter()
    page = write_report(folder / "report.html", runs, title="Viewer", settings={})
    return page, time.perf_counter() - start


def write_table(path: Path, tokens: Any, gap: Any, length: int, rng: np.random.Generator) -> None:
    count = len(tokens)
    names = pa.array([f" w{number:x}" if number % 7 else f"{number}\n" for number in range(WORDS)])
    p = 1 / (1 + np.exp(-gap) * rng.uniform(1, 2, count))
    competitor = rng.zipf(1.3, count) % WORDS
    others = np.sort(rng.dirichlet(np.ones(TOP), count), axis=1)[:, ::-1] * (1 - p)[:, None]
    ids = np.column_stack([tokens, competitor, rng.zipf(1.3, (count, TOP - 2)) % WORDS])
    logprobs = np.log(np.column_stack([p, others[:, : TOP - 1]]) + 1e-12)
    starts = pa.array(np.arange(0, TOP * count + 1, TOP), type=pa.int32())
    columns = {
        "example": np.arange(count) // length,
        "position": np.arange(count) % length,
        "token_id": tokens,
        "text": names.take(pa.array(tokens)),
        "category": rng.integers(0, 4, count),
        "nll": -np.log(p),
        "gap": gap,
        "competitor_id": competitor,
        "competitor_text": names.take(pa.array(competitor)),
        "entropy": rng.gamma(0.4, 0.8, count),
        "rank": np.where(gap > 0, 1, 1 + rng.geometric(0.2, count)),
        "gradient_norm": (1 - p) * rng.uniform(1, 2**0.5, count),
        "top_ids": pa.ListArray.from_arrays(starts, pa.array(ids.ravel(), type=pa.int32())),
        "top_logprobs": pa.ListArray.from_arrays(starts, pa.array(logprobs.ravel(), type=pa.float32())),
        "top_texts": pa.ListArray.from_arrays(starts, names.take(pa.array(ids.ravel()))),
    }
    prompts = [f"Problem {number}: " + "what is it? " * 20 for number in range(200)]
    schema = schema_with(TOP)
    metadata = {"model": "made up", "data": {"rows": count // length}, "prompts": prompts}
    with writing(path, metadata, schema) as append:
        for start in range(0, count, 256 * length):  # row groups as the real writer's
            rows = slice(start, start + 256 * length)
            append({name: _part(values, rows, schema.field(name).type) for name, values in columns.items()})


def _part(values: Any, rows: slice, kind: Any) -> Any:
    if isinstance(values, pa.Array):
        return values[rows.start : rows.stop]
    return values[rows] if "dictionary" in str(kind) else pa.array(values[rows], type=kind)


def measure(page: Path, repeats: int) -> dict[str, Any]:
    opened, heap = [], 0.0
    with Browser(size=(1400, 1000)) as browser:
        for _ in range(repeats):
            browser.open(page)
            wait(lambda: browser.run("return document.documentElement.dataset.tokens === 'ready'"))
            opened.append(browser.run("return performance.getEntriesByName('tokens-ready')[0].startTime"))
        browser.run("document.getElementById('viewer').scrollIntoView()")
        result: dict[str, Any] = {"open_ms": _median(opened)}
        margins = ("margin", "input", [1 + turn / 10 for turn in range(20)])
        browser.run(CHANGE, *margins, 10)  # the first ones are compiled; the medians are of a handle that is moved
        for colour in ("learned", "weight", "gap"):
            browser.put("quantity", colour, "change")
            result[f"recolour_by_{colour}_ms"] = _median(browser.run(CHANGE, *margins, 5 * repeats))
        orders = ("sort", "change", ["trimmed", "nll", "length", "order"])
        result["sort_ms"] = _median(browser.run(CHANGE, *orders, 4 * repeats))
        browser.run("const p = document.getElementById('pane'); p.scrollTop = p.scrollHeight / 2")
        time.sleep(0.5)
        browser.click("keep")
        browser.put("quantity", "difference", "change")
        result["recolour_by_difference_ms"] = _median(browser.run(CHANGE, *margins, 5 * repeats))
        heap = browser.run("return performance.memory.usedJSHeapSize") / 1e6
        result |= {"tokens_drawn": browser.run("return document.querySelectorAll('#pane .t').length")}
        said = browser.run("return document.querySelector('#tokens .intro').textContent")
        version = browser.run("return navigator.userAgent").split("Chrome/")[1].split(" ")[0]
    return result | {"heap_megabytes": heap, "intro": said, "chromium": version}


def _median(times: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(times), 1),
        "least": round(min(times), 1),
        "most": round(max(times), 1),
        "times": len(times),
    }


if __name__ == "__main__":
    main()
