"""The model card written beside a trained model: objective, data, settings and what the training measured."""

import dataclasses
import os
from enum import Enum
from typing import Any

from huggingface_hub import ModelCard, ModelCardData
from trl.trainer.utils import get_config_model_id

from trimsft.runs import environment

_SETTINGS = [
    "learning_rate", "lr_scheduler_type", "warmup_steps", "weight_decay", "adam_beta1", "adam_beta2", "max_grad_norm",
    "num_train_epochs", "max_length", "packing", "per_device_train_batch_size", "gradient_accumulation_steps", "bf16",
    "seed", "skip_below",
]  # fmt: skip
_FIGURES = {
    "loss": "weighted loss",
    "trim/nll": "nll",
    "mean_token_accuracy": "token accuracy",
    "trim/gap_p50": "median logit gap",
    "trim/mean_weight": "mean weight",
    "trim/effective_ratio": "effective ratio",
    "eval_loss": "evaluation loss",
    "eval_nll": "evaluation nll",
}


def model_card(trainer: Any, model_name: str | None, dataset_name: str | None, tags: Any = None) -> ModelCard:
    base = get_config_model_id(trainer.model.config)
    is_hub_name = bool(base) and not os.path.isdir(base)
    data = ModelCardData(
        base_model=base if is_hub_name else None,
        datasets=[dataset_name] if dataset_name and not os.path.exists(dataset_name) else None,
        library_name="peft" if hasattr(trainer.model, "peft_config") else "transformers",
        model_name=model_name,
        tags=sorted({*trainer._tag_names, *([tags] if isinstance(tags, str) else tags or [])}),
        pipeline_tag="text-generation",
    )
    name, versions = model_name or "model", environment()["versions"]
    origin = base if is_hub_name else os.path.basename(base or "") or "a local model"
    sections = [
        f"# {name}",
        f"Fine-tuned from {_code(origin)} with the objective {_objective(trainer)}.",
        "## Objective",
        "loss = sum of w * cross-entropy over the trained tokens of the global batch / their number; the weight w "
        "of a token comes from the same forward pass and is not differentiated "
        "(*Which Tokens Should SFT Actually Learn?*).",
        "## Data",
        *_data(trainer, dataset_name),
        "## Training",
        _table(("setting", "value"), _settings(trainer.args)),
        "## Measured while training",
        _measured(trainer.state.log_history),
        "## Use",
        _use(trainer, origin),
        "## Versions",
        ", ".join(f"{name} {versions[name]}" for name in ("trimsft", "trl", "transformers", "torch", "datasets")),
    ]
    return ModelCard(f"---\n{data.to_yaml()}\n---\n\n" + "\n\n".join(sections) + "\n")


def _settings(args: Any) -> list[tuple[str, Any]]:
    values = ((name, getattr(args, name, None)) for name in _SETTINGS)
    return [(name, value.value if isinstance(value, Enum) else value) for name, value in values]


def _use(trainer: Any, origin: str) -> str:
    if hasattr(trainer.model, "peft_config"):
        return (
            f"An adapter for {_code(origin)}:\n\n"
            "```python\nfrom peft import AutoPeftModelForCausalLM\n\n"
            'model = AutoPeftModelForCausalLM.from_pretrained("PATH_OF_THIS_FOLDER")\n```'
        )
    return (
        "```python\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        'model = AutoModelForCausalLM.from_pretrained("PATH_OF_THIS_FOLDER")\n'
        'tokenizer = AutoTokenizer.from_pretrained("PATH_OF_THIS_FOLDER")\n```\n\n'
        "or `vllm serve PATH_OF_THIS_FOLDER`."
    )


def _objective(trainer: Any) -> str:
    objective = trainer.objective
    name = type(objective).__name__
    if not dataclasses.is_dataclass(objective) or isinstance(objective, type):
        return _code(getattr(objective, "__name__", name))
    parameters = ", ".join(f"{key}={value}" for key, value in dataclasses.asdict(objective).items())
    return _code(f"{name}({parameters})")


def _data(trainer: Any, dataset_name: str | None) -> list[str]:
    name = os.path.basename(dataset_name) if dataset_name and os.path.exists(dataset_name) else dataset_name
    lines = [f"Dataset: {_code(name)}."] if name else []
    lines += [f"{name}: {report}" for name, report in trainer.length_reports.items()]
    return lines or ["Not recorded."]


def _measured(history: list[dict[str, Any]]) -> str:
    logged = {key: [record[key] for record in history if key in record] for key in _FIGURES}
    rows = [(_FIGURES[key], f"{values[0]:.4g}", f"{values[-1]:.4g}") for key, values in logged.items() if values]
    return _table(("", "first log", "last log"), rows) if rows else "Nothing was logged."


def _table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _code(text: Any) -> str:
    return f"`{str(text).replace('`', '')}`"
