"""Which causal models of transformers the fused head fits, which do without an attention mask, which can be packed.

    python benchmarks/causal_models.py --out results/causal_models.json
    python benchmarks/causal_models.py --only llama opt mamba

Every kind of causal model that transformers knows is built small, with random weights, in float32 on the CPU, in a
process of its own. Asked of each:

    loss     is the loss of the fused head that of the model's own logits? (relative difference)
    padded   do texts that are padded on the right have the logits, without a mask, that they have with one?
    rows     do texts that are packed into rows have the logits that each of them has alone?
    row      the same of one row that holds all of them, as TRL packs

An answer is the largest difference of a logit, in units of the spread of all logits; up to `ROUNDING` it is the same.
`causal` is whether the trainer gives such a model no mask on a GPU (`trimsft.train.batches`), `rows_refused` and
`row_refused` whether it refuses to train on such texts (`trimsft.train.packed`), as it should where logits differ.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
import transformers
from measuring import machine
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from trimsft.errors import one_line
from trimsft.objectives import SFT
from trimsft.train import batches, patch, unpatch
from trimsft.train.packed import IN_FLOAT32, change_between, relative

ROUNDING = 1e-4
SECONDS, MEMORY, MOST_PARAMETERS = 180, 8 << 30, 30_000_000
VOCABULARY, LENGTHS = 97, ((5, 11, 9), (13, 3, 9))
"""Texts of each packed row, by their tokens."""

SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "num_key_value_heads": 4, "head_dim": 8, "max_position_embeddings": 64,
}  # fmt: skip
"""Of every model that has them, under the names of transformers' attribute map."""

MORE_SIZES: dict[str, Any] = {
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "moe_num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 16, "moe_topk": 2, "n_shared_experts": 1, "shared_expert_intermediate_size": 16,
    "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8,
    "ffn_dim": 48, "encoder_layers": 2, "decoder_layers": 2, "decoder_ffn_dim": 48, "encoder_ffn_dim": 48,
    "decoder_attention_heads": 4, "encoder_attention_heads": 4, "d_model": 32, "embedding_size": 32,
    "word_embed_proj_dim": 32, "n_positions": 64, "n_inner": 48, "rotary_dim": 8, "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": VOCABULARY, "num_kv_shared_layers": 0,
    "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_chunk_size": 8, "mamba_d_ssm": 64,
    "mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 8, "state_size": 8, "chunk_size": 8,
    "num_heads": 4, "n_groups": 1, "mamba_n_groups": 1, "time_step_rank": 8,
    "linear_num_key_heads": 4, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "lru_width": 32, "attention_window_size": 16, "index_n_heads": 2, "index_head_dim": 8,
    "index_topk": 64,  # all tokens: in small models most scores are 0, and chance decides among equals
}  # fmt: skip
"""Of those that have them by this very name."""

OWN: dict[str, dict[str, Any]] = {
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "mamba2": {"num_heads": 8},
    "zaya": {"num_experts_per_tok": 1},
}
"""Of models that need something else."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="model types, such as llama; all by default")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    names = options.only or sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    answers = {}
    for name, answer in ask_each(names, options.processes):
        answers[name] = answer
        print(f"{name}: {json.dumps(answer)}", flush=True)
    summary = summarise(answers)
    print(json.dumps(summary, indent=1))
    if options.out:
        found = {"machine": machine(), "transformers": transformers.__version__, "summary": summary, "models": answers}
        options.out.write_text(json.dumps(found, indent=1) + "\n")


def ask_each(names: Sequence[str], processes: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each model in a process of its own: some abort it, some take all the memory."""
    context = multiprocessing.get_context("fork")
    for start in range(0, len(names), processes):
        some = names[start : start + processes]
        pools = {name: ProcessPoolExecutor(1, mp_context=context) for name in some}
        futures = {name: pool.submit(ask, name) for name, pool in pools.items()}
        for name in some:
            yield name, _answer(futures[name])
        for pool in pools.values():
            for process in (pool._processes or {}).values():
                process.kill()
            pool.shutdown(wait=False, cancel_futures=True)


def _answer(future: Future[dict[str, Any]]) -> dict[str, Any]:
    try:
        return future.result(SECONDS)
    except (BrokenExecutor, TimeoutError) as error:
        return {"failed": type(error).__name__}


def ask(name: str) -> dict[str, Any]:
    """What becomes of one kind of model; some errors of a configuration could not cross to another process."""
    try:
        return _ask(name)
    except Exception as error:
        return {"failed": one_line(error)[:300] or type(error).__name__}


def _ask(name: str) -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    model = build(name)
    texts = [[_text(length, 10 * row + place) for place, length in enumerate(row_)] for row, row_ in enumerate(LENGTHS)]
    flat = [text for row in texts for text in row]
    with torch.no_grad():
        alone = [logits(model, input_ids=text[None])[0] for text in flat]
        spread = torch.cat(alone).std().item()
        if not spread > 0:
            raise ValueError("all logits are the same")
        answer: dict[str, Any] = {"class": type(model).__name__, "causal": batches.is_causal(model)}
        answer["attention"] = model.config._attn_implementation
        answer["loss"] = _try(lambda: _loss_error(model, flat[1]))
        answer["padded"] = _try(lambda: _padded(model, flat, spread))
        for name, rows in {"rows": texts, "row": [flat]}.items():
            answer[name] = _try(lambda rows=rows: _packed(model, rows, alone, spread))
            answer[f"{name}_refused"] = _try(lambda rows=rows: _is_refused(model, rows))
    return answer


def build(name: str) -> Any:
    """A small model of this type; raises where none can be made."""
    torch.manual_seed(0)
    config = shrink(AutoConfig.for_model(name), OWN.get(name, {}))
    with torch.device("meta"):
        parameters = sum(one.numel() for one in AutoModelForCausalLM.from_config(config).parameters())
    if parameters > MOST_PARAMETERS:
        raise ValueError(f"is not small: {parameters:,} parameters")
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    for parameter in model.parameters():  # as they are made, many logits hardly depend on what was read
        if parameter.dim() > 1:
            parameter.data.normal_(0, 0.15)
    return model


def shrink(config: PretrainedConfig, own: Mapping[str, Any]) -> PretrainedConfig:
    """The same kind of model, small: made anew with other sizes, so that what follows from them is as well."""
    kind = type(config)
    known = {**config.to_dict(), **dict.fromkeys(config.attribute_map)}
    sizes = {key: value for key, value in {**SIZES, **MORE_SIZES}.items() if key in known and _is_size(known[key])}
    return kind(**{**sizes, **own})


def _is_size(value: Any) -> bool:
    return value is None or isinstance(value, int)


def _text(length: int, seed: int) -> Tensor:
    return torch.randint(3, VOCABULARY, (length,), generator=torch.Generator().manual_seed(seed))


def logits(model: Any, **batch: Any) -> Tensor:
    return model(**batch, use_cache=False).logits.float()  # type: ignore[no-any-return]


def _loss_error(model: Any, text: Tensor) -> float:
    """How far the fused loss of a text is from that of its logits."""
    expected = torch.nn.functional.cross_entropy(logits(model, input_ids=text[None])[0, :-1], text[1:])
    try:
        loss = patch(model, SFT())(input_ids=text[None], labels=text[None]).token_loss
    finally:
        unpatch(model)
    return (loss / expected - 1).abs().item()


def _padded(model: Any, texts: Sequence[Tensor], spread: float) -> float:
    """How far logits without a mask are from those with one."""
    ids = torch.nn.utils.rnn.pad_sequence(list(texts), batch_first=True, padding_value=0)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(text) for text in texts], batch_first=True)
    masked = logits(model, input_ids=ids, attention_mask=mask)
    with batches._not_packed():
        unmasked = logits(model, input_ids=torch.where(mask.bool(), ids, 7))
    return ((masked - unmasked)[mask.bool()].abs().max() / spread).item()


def _packed(model: Any, rows: Sequence[Sequence[Tensor]], alone: Sequence[Tensor], spread: float) -> float:
    """How far logits of texts that share rows are from those of each alone."""
    packed = logits(model, **_batch(rows)).flatten(0, 1)
    return ((packed - torch.cat(list(alone))).abs().max() / spread).item()


def _is_refused(model: Any, rows: Sequence[Sequence[Tensor]]) -> bool:
    try:
        change = change_between(patch(model, SFT()), _batch(rows))
    finally:
        unpatch(model)
    return relative(change) > IN_FLOAT32


def _batch(rows: Sequence[Sequence[Tensor]]) -> dict[str, Tensor]:
    ids = torch.stack([torch.cat(list(row)) for row in rows])
    positions = torch.stack([torch.cat([torch.arange(len(text)) for text in row]) for row in rows])
    return {"input_ids": ids, "position_ids": positions}


def _try(question: Callable[[], float | bool]) -> float | bool | str:
    try:
        answer = question()
        return answer if isinstance(answer, bool) else float(f"{answer:.2g}")
    except Exception as error:
        return one_line(error)[:200]


def summarise(answers: dict[str, dict[str, Any]]) -> dict[str, Any]:
    built = {name: answer for name, answer in answers.items() if "failed" not in answer}
    causal = {name: answer for name, answer in built.items() if answer["causal"]}

    def names(way: str, *, same: bool, refused: bool) -> list[str]:
        asked = {name: (_same(answer[way]), answer[f"{way}_refused"]) for name, answer in built.items()}
        return [name for name, answer in asked.items() if answer == (same, refused)]

    return {
        "models": len(answers),
        "built": len(built),
        "fused": len([name for name, answer in built.items() if _same(answer["loss"])]),
        "not_fused": [name for name, answer in built.items() if not _same(answer["loss"])],
        "without_a_mask": len(causal),
        "wrong_without_a_mask": [name for name, answer in causal.items() if not _same(answer["padded"])],
        **{
            f"packed_in_{way}": {
                "right": len(names(way, same=True, refused=False)),
                "refused": names(way, same=False, refused=True),
                "wrong_and_not_refused": names(way, same=False, refused=False),
                "right_and_refused": names(way, same=True, refused=True),
            }
            for way in ("rows", "row")
        },
    }


def _same(answer: float | str) -> bool:
    return not isinstance(answer, str) and answer <= ROUNDING


if __name__ == "__main__":
    main()
