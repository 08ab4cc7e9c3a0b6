r"""Measures what a change of the package must leave equal, and compares two measurements.

    python tools/same.py run --source OLD_CHECKOUT --out before.json
    python tools/same.py run --source NEW_CHECKOUT --out after.json --like before.json
    python tools/same.py compare before.json after.json

A fact is a number, a text or a tree of them; what depends on the clock, the versions or the folder is left out. Only
the command line, the documented names and the files of run directories are used, so that modules may move. `--like`
takes rows and graded cases from an earlier measurement: without it they come from the checkout and its tests.
"""

import argparse
import ast
import csv
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

VOLATILE = re.compile(r"(^|_)(time|runtime|seconds?|speed|date|versions?|memory|wall|peak|flos)(_|$)")
TOLERANT = ("quickstart", "study", "telemetry", "scores", "served/scores", "served/printed", "compare", "tokens")
"""Groups of facts whose fields may come and go: only what both sides have is compared, the rest is listed."""
STEPS = (
    "--max_steps 6 --per_device_train_batch_size 4 --learning_rate 5e-4 --bf16 false --logging_steps 1 --seed 3 --quiet"
)
TRAININGS = {
    **{name: f"--objective {name}" for name in ("sft", "fsft", "dft", "trim", "trim-e", "trim-h", "auto-trim")},
    "accumulated": "--objective trim --gradient_accumulation_steps 3",
    "packed": "--objective trim --packing true --max_length 256",
    "packed auto-trim": "--objective auto-trim --packing true --max_length 256",
    "lora": "--objective auto-trim --use_peft true --lora_r 4 --lora_target_modules q_proj down_proj",
}
CHOICE = {"grading": "choice", "choices": ["3", "4"]}
PATTERN = {"grading": "regex", "pattern": "#### (-?[0-9.,]+)"}
SERVED: list[tuple[str, str, dict[str, Any]]] = [  # gold, response, what the problem declares
    ("42", r"so \boxed{42}", {}), ("42", r"so \boxed{41}", {}), ("42", "it is 42", {}), ("42", r"\boxed{((}", {}),
    ("1,3", r"\boxed{3} and \boxed{1}", {"is_multiple_answer": True}), ("4.2", r"\boxed{4.25}", {"error": "1e-1"}),
    ("4.2", r"\boxed{4.4}", {"error": "1e-1"}), ("4.5e33", r"\boxed{4.5004\times 10^{33}}", {"tolerance": 1e-4}),
    ("4.5e33", r"\boxed{4.51\times 10^{33}}", {"tolerance": 1e-4}),
    ("45", r"\boxed{45 \text{ hours}}", {"unit": "minute"}), ("45", r"\boxed{45 \text{ minutes}}", {"unit": "minute"}),
    ("B", "The answer is (B).", CHOICE), ("B", "The answer is A.", CHOICE), ("B", r"\boxed{4}", CHOICE),
    ("18", "5 + 13\n#### 18", PATTERN), ("18", r"\boxed{18}", PATTERN),
    ("Paris", "Paris", {"grading": "exact"}), ("Paris", "paris", {"grading": "exact"}),
]  # fmt: skip
Facts = dict[str, Any]
Measures = Iterator[tuple[str, Callable[[], Any]]]


# ---- helpers of the measurements


def words(*parts: Any) -> list[str]:
    """Return the words of a command: texts are split at blanks, paths are not."""
    split = [part.split() if isinstance(part, str) else [str(part)] for part in parts]
    return [sys.executable, "-m", "trimsft", *(word for one in split for word in one)]


def cli(*parts: Any) -> str:
    """Run a command in the folder of work and return what it prints; raise with its last line if it fails."""
    done = subprocess.run(words(*parts), capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()
        raise RuntimeError(f"trimsft {parts[0]} ended with {done.returncode}: {lines[-1]}")
    return done.stdout


def printed(*parts: Any) -> Any:
    return clean(read_json(cli(*parts, "--json")))


def read_json(text: str) -> Any:
    """Return the JSON that a command prints, notes before it left out."""
    return json.loads(text[min(at for at in (text.find("{"), text.find("[")) if at >= 0) :])


def clean(value: Any) -> Any:
    """Return the value without times, versions and the folder of work."""
    if isinstance(value, dict):
        return {str(key): clean(one) for key, one in value.items() if not VOLATILE.search(str(key))}
    if isinstance(value, list | tuple):
        return [clean(one) for one in value]
    if isinstance(value, str):
        return value.replace(os.getcwd(), "WORK").replace(os.environ["SAME_SOURCE"], "SOURCE")
    return value


def sha(content: bytes | str) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:16]


def sha_of(tensor: Any) -> str:
    import torch

    return sha(bytes(tensor.detach().contiguous().flatten().view(torch.uint8).numpy()))


def jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def weights(run: str, folder: str = "model") -> dict[str, str]:
    """Return a hash for each tensor of a saved model."""
    from safetensors.torch import load_file

    files = sorted((Path(run) / folder).rglob("*.safetensors"))
    found = {name: sha_of(tensor) for file in files for name, tensor in load_file(file).items()}
    return found or {"error": f"no tensors in {run}/{folder}"}


def telemetry(run: str) -> list[dict[str, Any]]:
    return clean(jsonl(Path(run) / "train" / "telemetry.jsonl"))


def table(path: Path) -> Any:
    """Return a JSON file, or the columns of a CSV with numbers as numbers."""
    if path.suffix == ".json":
        return clean(json.loads(path.read_text("utf-8")))
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    return clean({name: [number(row[at]) for row in rows[1:]] for at, name in enumerate(rows[0])} if rows else {})


def number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


# ---- the measurements: each yields names and functions; an error of a function becomes its fact


def inputs(source: Path, data: Path) -> dict[str, Any]:
    """Return rows of the lab and graded cases, from the checkout and its tests."""
    from trimsft import lab

    rows = [{key: row[key] for key in ("problem", "solution")} for row in lab.training_rows(lab.FineTuning(rows=96))]
    cases: dict[str, list[tuple[str, str]]] = {}  # set: gold and response
    for path in sorted((source / "tests" / "grading").glob("*.tsv")):
        lines = [line.split("\t") for line in path.read_text("utf-8").splitlines()[1:]]
        cases[path.name] = [(line[-2], rf"So $\boxed{{{line[-1]}}}$.") for line in lines]
    for path in sorted((source / "tests" / "grading").glob("test_*.py")):
        if found := list(dict.fromkeys(literal_pairs(ast.parse(path.read_text("utf-8"))))):
            cases[path.name] = found
    for path in sorted((data / "benchmarks").glob("*.jsonl")):
        golds = [str(row["answer"]) for row in jsonl(path)]
        respelled = [
            gold.replace(r"\frac", r"\dfrac").replace("(", r"\bigl(").replace(")", r"\bigr)") for gold in golds
        ]
        for name, answers in (
            ("", golds),
            (", respelled", ["{}" + gold for gold in respelled]),
            (", next", golds[1:] + golds[:1]),
        ):
            cases[f"{path.stem}{name}"] = [
                (gold, rf"Therefore $\boxed{{{answer}}}$.") for gold, answer in zip(golds, answers, strict=True)
            ]
    return {"rows": rows, "cases": cases}


def literal_pairs(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield gold and response of every pair of texts in a test file, pairs of answers both ways round."""
    names: dict[int, list[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "parametrize":
            columns = ast.literal_eval(node.args[0])
            columns = [one.strip() for one in columns.split(",")] if isinstance(columns, str) else list(columns)
            names |= {id(one): columns for one in ast.walk(node.args[1])}
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple):
            columns = names.get(id(node), ["gold", "answer"])
            row = {
                name: one.value for name, one in zip(columns, node.elts, strict=False) if isinstance(one, ast.Constant)
            }
            texts = {name: value for name, value in row.items() if isinstance(value, str)}
            gold, response = texts.get("gold", texts.get("answer")), texts.get("response")
            if gold is not None and response is not None:
                yield gold, response
            elif {"gold", "answer"} <= texts.keys():
                yield texts["gold"], rf"\boxed{{{texts['answer']}}}"
                yield texts["answer"], rf"\boxed{{{texts['gold']}}}"


def measure_grading(given: Facts) -> Measures:
    from trimsft.evaluate import grade

    def verdicts(pairs: list[tuple[str, str]]) -> dict[str, str]:
        return {f"{gold} <- {response}": grade(response, gold).status for gold, response in pairs}

    for name, pairs in given["cases"].items():
        yield f"grading/{name}", partial(verdicts, pairs)


def measure_quickstart(given: Facts) -> Measures:
    size = "" if os.environ.get("SAME_FULL") else "--fast"
    yield "quickstart/table", partial(printed, "quickstart --out quickstart", size)


def measure_study(given: Facts) -> Measures:
    # answers of a real length: the smoke test's own are cut off, so that every score would be 0
    yield "study/ended", lambda: bool(cli("study run all --smoke --max-tokens 96 -q --out study"))
    grid = "--grid margin=0,3 --grid bandwidth=1,3 --seeds 2"
    yield "study/sweep ended", lambda: bool(cli("sweep --smoke --max-tokens 96 -q --out sweep", grid))
    for path in sorted(
        [*Path("study/tables").rglob("*.*"), *Path("sweep").glob("*.*"), *Path("sweep/figures").rglob("*.*")]
    ):
        if path.suffix in (".csv", ".json"):
            yield f"study/{path}", partial(table, path)


def measure_train(given: Facts) -> Measures:
    for name, options in TRAININGS.items():
        run = f"train-{name.replace(' ', '-')}"
        train = partial(cli, "train --model", Path(given["base"]), "--data rows.jsonl --out", run, STEPS, options)
        yield f"weights/{name}", lambda train=train, run=run: (train(), weights(run))[1]
        yield f"telemetry/{name}", partial(telemetry, run)
    yield "weights/lora exported", lambda: (cli("export train-lora --out exported/model"), weights("exported"))[1]


def measure_resume(given: Facts) -> Measures:
    more = "--data rows.jsonl --objective auto-trim --max_steps 12 --gradient_accumulation_steps 6 --save_steps 2 --out"
    train = ["train --model", Path(given["base"]), STEPS, more]

    def losses(run: str) -> dict[int, float]:
        return {line["step"]: line["loss"] for line in telemetry(run) if "loss" in line}  # the last of each step

    def resumed(sent: signal.Signals, run: str) -> dict[str, Any]:
        lines, deadline = Path(run, "train", "telemetry.jsonl"), time.monotonic() + 300
        with subprocess.Popen(words(*train, run), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            while process.poll() is None and time.monotonic() < deadline:
                if lines.is_file() and lines.read_bytes().count(b"\n") >= 3:
                    break
                time.sleep(0.005)
            process.send_signal(sent)
            code = process.wait()
        was_interrupted = "error" in weights(run)
        cli(*train, run)
        same = {"weights": weights(run) == weights("whole"), "losses": losses(run) == losses("whole")}
        return {"exit code": code, "was interrupted": was_interrupted, "as uninterrupted": same}

    yield "resume/uninterrupted", lambda: (cli(*train, "whole"), weights("whole"))[1]
    yield "resume/SIGTERM at step 3", partial(resumed, signal.SIGTERM, "term")
    yield "resume/SIGKILL after a checkpoint", partial(resumed, signal.SIGKILL, "kill")


def measure_tokens(given: Facts) -> Measures:
    def columns(path: str) -> dict[str, Any]:
        import pyarrow.parquet as pq

        read = pq.read_table(path)
        hashes = {name: sha(json.dumps(read.column(name).to_pylist())) for name in read.schema.names}
        return hashes | {"rows": read.num_rows}

    measure = partial(printed, "tokens", Path(given["base"]), "--data rows.jsonl --limit 40 --top 2 --out")
    yield "tokens/printed", partial(measure, "tokens.parquet")
    yield "tokens/columns", partial(columns, "tokens.parquet")
    yield "tokens/auto-trim", partial(measure, "auto.parquet --objective auto-trim")


def measure_eval(given: Facts) -> Measures:
    asked = "-b lab-medium --limit 20 --samples 4 --seed 7 --max-tokens 96"
    base = Path(given["base"])

    def samples(run: str) -> dict[str, str]:
        rows = jsonl(Path(run, "eval/lab-medium/samples.jsonl"))
        return {f"{row['problem']}/{row['sample']}": f"{row['finish']} {sha(row['text'])}" for row in rows}

    def scores(run: str, benchmark: str = "lab-medium") -> Any:
        return table(Path(run, "eval", benchmark, "scores.json"))

    def graded_again() -> bool:
        shutil.copytree("base", "again")
        for path in [*Path("again/eval/lab-medium").glob("grade*"), Path("again/eval/lab-medium/scores.json")]:
            path.unlink()
        cli("eval", base, asked, "--out again")
        return scores("base") == scores("again") and samples("base") == samples("again")

    def trained() -> Any:
        cli("train --model", base, "--data rows.jsonl --objective trim --out trained", STEPS)
        return printed("eval trained", asked)

    yield "scores/base, printed", partial(printed, "eval", base, asked, "--out base")
    yield "scores/trained, printed", trained
    for run in ("base", "trained"):
        yield f"samples/{run}", partial(samples, run)
        yield f"scores/{run}", partial(scores, run)
    yield "samples/record graded again is the same", graded_again
    for metric in ("average", "greedy", "pass@2", "majority@4"):
        yield f"compare/{metric}", partial(printed, "compare base trained --metric", metric)
    grades = Path("served/eval/cases/grades.jsonl")
    yield "served/printed", served
    yield "served/scores", partial(scores, "served", "cases")
    yield "served/grades", lambda: {f"{row['problem']}/{row['sample']}": row["status"] for row in jsonl(grades)}


def served() -> Any:
    """Evaluate a server that gives fixed answers, to problems that declare how they are graded."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply({"data": [{"id": "m", "owned_by": "nobody"}]} if self.path == "/v1/models" else None)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()
            found = re.findall(r"case (\d+)", body)  # none where the client tries what the server understands
            text = SERVED[int(found[-1])][1] if found else ""
            choice = {
                "finish_reason": "stop",
                "text": text,
                "message": {"role": "assistant", "content": text},
                "index": 0,
            }
            self.reply({"choices": [choice], "usage": {"completion_tokens": 7, "prompt_tokens": 7, "total_tokens": 14}})

        def reply(self, content: Any) -> None:
            data = json.dumps(content or {}).encode()
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    problems = [
        {"id": f"c{at}", "problem": f"case {at}", "answer": gold} | more for at, (gold, _, more) in enumerate(SERVED)
    ]
    Path("cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in problems))
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        try:
            options = "--samples 2 --max-tokens 64 --out served"
            return printed("eval m -b cases.jsonl --server", address, options)
        finally:
            server.shutdown()


def head(
    objective: Any, backend: str, rows: int = 48, vocabulary: int = 301, dtype: str = "float32", **options: Any
) -> Any:
    """Return loss, weights, statistics and gradients of one call on seeded inputs."""
    import torch

    from trimsft import linear_cross_entropy

    make, ignored = torch.Generator().manual_seed(5), options.get("ignore_index", -100)
    hidden, weight = torch.randn(rows, 24, generator=make), torch.randn(vocabulary, 24, generator=make) / 2
    labels, part = torch.randint(vocabulary, (rows,), generator=make), rows // 4
    top = (hidden @ weight.T).topk(2).indices  # half of the tokens are the first choice or the second
    labels[:part], labels[part : 2 * part], labels[::7] = top[:part, 0], top[part : 2 * part, 1], ignored
    leaves = {"hidden": hidden, "weight": weight}
    if options.pop("bias", False):
        leaves["bias"] = torch.randn(vocabulary, generator=make)
    leaves = {name: leaf.to(getattr(torch, dtype)).requires_grad_() for name, leaf in leaves.items()}
    if options.pop("compares", False):
        options["reference"] = -3 * torch.rand(rows, generator=make)
    out = linear_cross_entropy(labels=labels, objective=objective, backend=backend, **leaves, **options)
    out.loss.backward()
    return {
        "loss": out.loss.item(), "weights": [float(out.weights.sum()), sha_of(out.weights)],
        **{name: sha_of(getattr(out.tokens, name)) for name in ("nll", "gap", "gold_logit", "competitor")},
        **{name: [float(leaf.grad.float().norm()), sha_of(leaf.grad)] for name, leaf in leaves.items()},
    }  # fmt: skip


def measure_head(given: Facts) -> Measures:
    import torch

    from trimsft import OBJECTIVES, make_objective

    def measure(name: str, backend: str, cases: dict[str, dict[str, Any]]) -> dict[str, Any]:
        skips: list[dict[str, float]] = [{}, {"skip_below": 0}, {"skip_below": 1e-2}]
        own = (lambda tokens: torch.sigmoid(tokens.gap + 1)) if name == "function" else None
        more = {"compares": name in ("rho-1", "iw-sft", "psft", "asft")}  # with a reference model's probabilities
        return {
            f"{case} {skip or ''}": head(own or make_objective(name), backend, **options, **skip, **more)
            for case, options in cases.items()
            for skip in skips
        }

    cases: dict[str, dict[str, Any]] = {
        "plain": {}, "bias": {"bias": True}, "softcap": {"softcap": 5.0}, "scale": {"logit_scale": 0.5, "bias": True},
        "both": {"softcap": 9.0, "logit_scale": 2.0}, "ignore": {"ignore_index": 3, "normalizer": 7.5},
        "bf16": {"dtype": "bfloat16"}, "many": {"rows": 4000, "vocabulary": 5003},
    }  # fmt: skip
    if os.environ.get("TRITON_INTERPRET"):
        few = {case: cases[case] | {"rows": 8, "vocabulary": 67} for case in ("plain", "scale")}
        for name in ("sft", "trim", "auto-trim"):
            yield f"head/{name}, triton", partial(measure, name, "triton", few)
    else:
        for name in [*OBJECTIVES, "function"]:
            for backend in ("reference", "chunked"):
                yield f"head/{name}, {backend}", partial(measure, name, backend, cases)


def measure_trl(given: Facts) -> Measures:
    """Yield losses and gradients of 58 trainings, each beside the same one with TRL's trainer."""
    import peft
    import torch
    from datasets import Dataset, disable_progress_bars
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
    from transformers.utils.logging import disable_progress_bar
    from trl import SFTConfig, SFTTrainer

    from trimsft.train import TrimSFTConfig, TrimSFTTrainer

    disable_progress_bars()
    disable_progress_bar()
    special = ["<pad>", "<eos>", "<unk>", "<user>", "<assistant>"]
    vocabulary = [*special, *(f"w{index}" for index in range(90))]
    backend = Tokenizer(models.WordLevel({word: at for at, word in enumerate(vocabulary)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokens = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
    tokens.chat_template = (
        "{% for m in messages %}{% if m['role'] == 'user' %}<user> {{ m['content'] }} <eos> {% else %}<assistant> "
        "{% generation %}{{ m['content'] }} <eos> {% endgeneration %}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<assistant> {% endif %}"
    )
    size = {
        "vocab_size": 95, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": None,
        "eos_token_id": 1,
    }  # fmt: skip
    experts = {"num_experts_per_tok": 2, "experts_implementation": "eager"}
    kinds: dict[str, dict[str, Any]] = {
        "llama": {"tie_word_embeddings": False}, "llama tied": {"tie_word_embeddings": True}, "qwen2": {},
        "qwen3": {"head_dim": 16}, "gemma2": {"head_dim": 16, "final_logit_softcapping": 4.0}, "phi": {},
        "granite": {"logits_scaling": 3.0, "embedding_multiplier": 2.0}, "cohere": {"logit_scale": 0.4},
        "mixtral": {**experts, "num_local_experts": 4, "router_aux_loss_coef": 0.5, "output_router_logits": True},
        "olmoe": {**experts, "num_experts": 4},
        "qwen3_moe": {**experts, "num_experts": 4, "moe_intermediate_size": 16, "head_dim": 16},
    }  # fmt: skip

    def text(count: int, seed: int) -> str:
        return " ".join(random.Random(seed).choices(vocabulary[5:], k=count))

    def say(user: str, assistant: str) -> list[dict[str, str]]:
        return [{"role": "user", "content": user}, {"role": "assistant", "content": assistant.strip()}]

    lengths = list(enumerate((2, 31, 5, 17, 3, 44, 9, 12)))
    texts = [{"text": text(length, at)} for at, length in lengths]
    asked = [{"prompt": text(4 + at % 3, at), "completion": " " + text(length, 100 + at)} for at, length in lengths]
    said = [say(row["prompt"], row["completion"]) for row in asked]
    chats = [{"prompt": turns[:1], "completion": turns[1:]} for turns in said]
    turns = [{"messages": one + say(text(2, at), text(4, 50 + at))} for at, one in enumerate(said)]
    ids = [{"input_ids": [*range(5, 5 + n)], "labels": [-100, -100, *range(7, 5 + n)]} for n in (4, 9, 20, 6)]
    packed: dict[str, Any] = {"packing": True, "max_length": 40}
    data: dict[str, tuple[Any, dict[str, Any]]] = {
        "text": (texts, {}), "text truncated": (texts, {"max_length": 10}), "prompt and completion": (asked, {}),
        "text truncated at its start": (texts, {"max_length": 10, "truncation_mode": "keep_end"}),
        "prompt trained too": (asked, {"completion_only_loss": False}), "messages": (turns, {}),
        "assistant only": (turns, {"assistant_only_loss": True}), "chats": (chats, {}), "tokenised": (ids, {}),
        "packed": (texts, packed), "packed, assistant only": (turns, packed | {"assistant_only_loss": True}),
        "wrapped": (turns, packed | {"packing_strategy": "wrapped", "max_length": 20}),
        "padding-free": (asked, {"padding_free": True, "max_length": None}),
        "accumulated": (asked, {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4}),
        "gradient checkpointing": (asked, {"gradient_checkpointing": True}),
        "shuffled": (asked, {"shuffle_dataset": True, "seed": 3}),
        "clipped": (asked, {"weight_decay": 0.1, "optim": "adamw_torch", "max_grad_norm": 0.5}),
    }  # fmt: skip
    lora = {"target_modules": ["q_proj", "down_proj"], "r": 4}
    prompts = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    some = {"one": Dataset.from_list(asked[:3]), "two": Dataset.from_list(asked[2:])}
    evaluated = {"eval_strategy": "steps", "eval_steps": 1}
    more: dict[str, tuple[str, Any, dict[str, Any], dict[str, Any]]] = {  # kind, rows, settings, options
        **{f"{kind}, {name}": (kind, *one, {}) for kind in ("llama", "qwen3") for name, one in data.items()},
        **{f"{kind}, by 3": (kind, asked, {"gradient_accumulation_steps": 3}, {}) for kind in kinds},
        "no router loss": ("mixtral", asked, {"router_aux_loss_coef": 0.0}, {}),
        "lora": ("llama", asked, {}, {"peft_config": peft.LoraConfig(**lora)}),
        "lora, lm_head": ("llama", asked, {}, {"peft_config": peft.LoraConfig(**lora, modules_to_save=["lm_head"])}),
        "prompt tuning": ("llama", asked, {}, {"peft_config": prompts}),
        "streaming": ("llama", "stream", {}, {}), "evaluated": ("llama", asked, evaluated, {"eval_dataset": some}),
        "label smoothing": ("llama", asked, {"label_smoothing_factor": 0.2}, {}),
        "cosine": ("llama", asked, {"lr_scheduler_type": "cosine", "warmup_steps": 1}, {}),
        "an epoch with a rest": ("llama", asked[:7], {"max_steps": -1, "num_train_epochs": 1}, {}),
        "gemma2, packed": ("gemma2", texts, packed, {}), "bf16": ("llama", asked, {"bf16": True}, {}),
        "mixtral, checkpointing": ("mixtral", asked, {"gradient_checkpointing": True}, {}),
        "qwen2, bf16 weights": ("qwen2", asked, {}, {"dtype": torch.bfloat16}),
    }  # fmt: skip

    def train(ours: bool, kind: str, rows: Any, settings: dict[str, Any], options: dict[str, Any]) -> Any:
        torch.manual_seed(0)
        options = dict(options)
        config = AutoConfig.for_model(kind.split()[0], **size, **kinds[kind])
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        model.generation_config.eos_token_id = 1
        model.get_output_embeddings().weight.data.normal_(0, 0.3)
        model, gradients = model.to(options.pop("dtype", torch.float32)), []

        class Keep(TrainerCallback):
            def on_pre_optimizer_step(self, *_: Any, model: Any = None, **__: Any) -> None:
                gradients.append(
                    torch.cat([one.grad.double().flatten() for one in model.parameters() if one.grad is not None])
                )

        given = {
            "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "max_steps": 2, "optim": "sgd",
            "learning_rate": 0.03, "lr_scheduler_type": "constant", "max_grad_norm": 0.0, "logging_steps": 1,
            "save_strategy": "no", "report_to": [], "gradient_checkpointing": False, "use_cpu": True, "bf16": False,
            "dataloader_pin_memory": False, "disable_tqdm": True, "max_length": 64, "output_dir": "trl", **settings,
        }  # fmt: skip
        args = TrimSFTConfig(objective="sft", skip_below=0.0, **given) if ours else SFTConfig(**given)
        dataset = Dataset.from_list(asked).to_iterable_dataset() if rows == "stream" else Dataset.from_list(rows)
        kind_of = TrimSFTTrainer if ours else SFTTrainer
        trainer = kind_of(model, args, train_dataset=dataset, processing_class=tokens, callbacks=[Keep()], **options)
        trainer.train()
        logs = [log for log in trainer.state.log_history if "train_runtime" not in log]
        names = ("loss", "eval_one_loss", "eval_two_loss", "aux_loss")
        return [log[name] for log in logs for name in names if name in log], gradients

    def pair(one: tuple[Any, ...]) -> dict[str, Any]:
        (losses, ours), (expected, theirs) = train(True, *one), train(False, *one)
        # Adam divides a gradient by its own size: rounding of one that is next to nothing moves a weight in full
        bound = 2**-6 if "bf16" in one[2] or "dtype" in one[3] else 1e-3 if "optim" in one[2] else 200 * 2**-24
        gaps = [abs(a - b) / abs(b) for a, b in zip(losses, expected, strict=True)]
        gaps += [float((a - b).norm() / b.norm()) for a, b in zip(ours, theirs, strict=True)]
        return {"losses": losses, "gradients": [float(a.norm()) for a in ours], "as TRL": max(gaps) <= bound}

    for name, one in more.items():
        yield f"trl/{name}", partial(pair, one)


# ---- running


MEASURES: dict[str, Callable[[Facts], Measures]] = {
    "study": measure_study, "quickstart": measure_quickstart, "train": measure_train, "grading": measure_grading,
    "trl": measure_trl, "resume": measure_resume, "eval": measure_eval, "head": measure_head, "triton": measure_head,
    "tokens": measure_tokens,
}  # fmt: skip


def child(name: str, source: Path, data: Path) -> None:
    """Measure one group in the folder of work; what is measured so far is always written."""
    if name == "triton":
        os.environ["TRITON_INTERPRET"] = "1"
    import trimsft

    if not Path(trimsft.__file__).is_relative_to(source):
        raise SystemExit(f"trimsft comes from {trimsft.__file__}, not from the checkout")
    if name == "inputs":
        Path("../inputs.json").write_text(json.dumps(inputs(source, data)))
        return
    given, facts = json.loads(Path("../inputs.json").read_text("utf-8")), {}
    for fact, measure in MEASURES[name](given):
        try:
            facts[fact] = measure()
        except Exception as error:
            facts[fact] = clean(f"error: {type(error).__name__}: {str(error)[:300]}")
        Path("facts.json").write_text(json.dumps(facts))


def run(arguments: argparse.Namespace) -> int:
    source, began = arguments.source.resolve(), time.monotonic()
    environment = os.environ | {
        "PYTHONPATH": str(source / "src"), "SAME_SOURCE": str(source), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": "", "SAME_FULL": "1" if arguments.full else "",
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="same-") as folder:
        work = Path(folder)

        def start(name: str) -> Facts:
            (work / name).mkdir()
            if (work / "rows.jsonl").is_file():
                shutil.copy(work / "rows.jsonl", work / name)
            # -P: the modules beside this file have names of the standard library
            command = [sys.executable, "-P", Path(__file__).resolve(), "child", name, source, arguments.data.resolve()]
            with (work / name / "log.txt").open("w") as log:
                options = {"cwd": work / name, "env": environment, "stdout": log, "stderr": log}
                code = subprocess.run(command, check=False, **options).returncode
            last = ((work / name / "log.txt").read_text(errors="replace").strip().splitlines() or ["no message"])[-1]
            sys.stderr.write(f"{time.monotonic() - began:5.0f} s  {name}{f': error {code}, {last}' if code else ''}\n")
            facts = work / name / "facts.json"
            ended = {f"{name}/ended": f"error: {last}"} if code else {}
            return (json.loads(facts.read_text("utf-8")) if facts.is_file() else {}) | ended

        if arguments.like:
            given = json.loads(arguments.like.read_text("utf-8"))["inputs"]
        elif failed := start("inputs"):
            raise SystemExit(str(failed))
        else:
            given = json.loads((work / "inputs.json").read_text("utf-8"))
        base = next((source / "src").rglob("base/model.safetensors")).parent
        (work / "inputs.json").write_text(json.dumps(given | {"base": str(base)}))
        (work / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given["rows"]))
        facts = {"base/weights": sha((base / "model.safetensors").read_bytes())}
        if arguments.only and arguments.out.is_file():  # other groups keep their facts
            facts |= json.loads(arguments.out.read_text("utf-8"))["facts"]
        with ThreadPoolExecutor(arguments.jobs) as threads:
            for one in threads.map(start, [name for name in MEASURES if name in (arguments.only or MEASURES)]):
                facts |= one
    arguments.out.write_text(json.dumps({"inputs": given, "facts": facts}, indent=0) + "\n")
    errors = [name for name, value in facts.items() if isinstance(value, str) and value.startswith("error")]
    sys.stdout.write(f"{len(facts)} facts in {time.monotonic() - began:.0f} s; errors: {', '.join(errors) or 'none'}\n")
    return 0


# ---- comparing


def differences(a: Any, b: Any, at: str, is_tolerant: bool, lone: set[str], rel: float) -> Iterator[str]:
    """Yield a line for each leaf that differs; `lone` takes the fields that one side alone has."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in [*a, *(b.keys() - a.keys())]:
            if key in a and key in b:
                yield from differences(a[key], b[key], f"{at}/{key}", is_tolerant, lone, rel)
            elif is_tolerant:
                lone.add(f"{'-' if key in a else '+'}{key}")
            else:
                yield f"{at}/{key}: only {'before' if key in a else 'after'}"
        if a and b and not a.keys() & b.keys():
            yield f"{at}: no field in common"
    elif isinstance(a, list) and isinstance(b, list):
        if len(a) != len(b):
            yield f"{at}: {len(a)} entries, then {len(b)}"
        for index, (one, other) in enumerate(zip(a, b, strict=False)):
            yield from differences(one, other, f"{at}[{index}]", is_tolerant, lone, rel)
    elif a != b and not (a != a and b != b):
        size = ""
        if type(a) in (int, float) and type(b) in (int, float):
            relative = abs(a - b) / max(abs(a), abs(b))
            if relative <= rel:
                return
            size = f" ({relative:.1e} relative)"
        yield f"{at}: {a!r}, then {b!r}{size}"


def compare(arguments: argparse.Namespace) -> int:
    before, after = (json.loads(path.read_text("utf-8"))["facts"] for path in (arguments.before, arguments.after))
    chosen = [name for name in before | after if not arguments.only or name.split("/")[0] in arguments.only]
    counts = {"same": 0, "differs": 0, "missing": 0}
    for name in chosen:
        lone: set[str] = set()
        found: list[str] = []
        if name not in before or name not in after:
            kind, text = "missing", f"only {'before' if name in before else 'after'}"
        else:
            found = list(differences(before[name], after[name], "", name.startswith(TOLERANT), lone, arguments.rel))
            kind, text = ("differs", f"{len(found)} values") if found else ("same", "")
        if kind == "same" and str(before[name]).startswith("error"):
            text = str(before[name])
        fields = f"  [fields on one side: {', '.join(sorted(lone))}]" if lone else ""
        counts[kind] += 1
        if kind != "same" or fields or text or not arguments.quiet:
            sys.stdout.write(f"{kind:8} {name}  {text}{fields}\n")
        for line in found[: arguments.most]:
            sys.stdout.write(f"             {line}\n")
    sys.stdout.write(", ".join(f"{count} {kind}" for kind, count in counts.items()) + "\n")
    return int(counts["differs"] + counts["missing"] > 0)


def main() -> int:
    if sys.argv[1:2] == ["child"]:
        child(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("run", help="measure a checkout")
    one.add_argument("--source", type=Path, required=True, help="the checkout; its src is what is measured")
    one.add_argument("--out", type=Path, required=True, help="the file of facts to write")
    one.add_argument("--only", nargs="+", choices=MEASURES, help="these groups alone")
    one.add_argument("--like", type=Path, help="take rows and graded cases from this file of facts")
    one.add_argument(
        "--data",
        type=Path,
        default=Path(__file__).resolve().parents[2] / "shared" / "data",
        help="folder of benchmarks/",
    )
    one.add_argument("--full", action="store_true", help="the whole quickstart, not --fast")
    one.add_argument("--jobs", type=int, default=2, help="groups side by side")
    one.set_defaults(call=run)
    two = commands.add_parser("compare", help="compare two files of facts; exit code 1 if they differ")
    two.add_argument("before", type=Path)
    two.add_argument("after", type=Path)
    two.add_argument("--only", nargs="+", help="facts of these groups alone: the first part of a name")
    two.add_argument("--rel", type=float, default=0.0, help="relative difference of numbers that is none")
    two.add_argument("--most", type=int, default=12, help="lines shown of each fact that differs")
    two.add_argument("--quiet", action="store_true", help="leave out what is the same")
    two.set_defaults(call=compare)
    arguments = parser.parse_args()
    return int(arguments.call(arguments))


if __name__ == "__main__":
    sys.exit(main())
