"""The model card written beside a trained model: objective, data, settings and figures of the training."""

import dataclasses
import os
from typing import Any

from huggingface_hub import ModelCard, ModelCardData
from trl.trainer.utils import get_config_model_id

from trimsft.runs import environment
from trimsft.runs.records import TelemetryLine, figures_of
from trimsft.train.telemetry import PREFIX

_SETTINGS = [
    "learning_rate", "lr_scheduler_type", "warmup_steps", "weight_decay", "adam_beta1", "adam_beta2", "max_grad_norm",
    "num_train_epochs", "max_length", "packing", "per_device_train_batch_size", "gradient_accumulation_steps", "bf16",
    "seed", "skip_below",
]  # fmt: skip


def model_card(trainer: Any, model_name: str | None, dataset_name: str | None, tags: Any = None) -> ModelCard:
    """Return the card of the trainer's model, as it is now."""
    base, is_adapter = get_config_model_id(trainer.model.config), hasattr(trainer.model, "peft_config")
    is_hub_name = bool(base) and not os.path.isdir(base)
    is_file = bool(dataset_name) and os.path.exists(str(dataset_name))
    header = ModelCardData(
        base_model=base if is_hub_name else None,
        datasets=[dataset_name] if dataset_name and not is_file else None,
        library_name="peft" if is_adapter else "transformers",
        model_name=model_name,
        tags=sorted({*trainer._tag_names, *([tags] if isinstance(tags, str) else tags or [])}),
        pipeline_tag="text-generation",
    )
    origin = base if is_hub_name else os.path.basename(base or "") or "a local model"
    objective = trainer.objective
    described = getattr(objective, "__name__", type(objective).__name__)
    if dataclasses.is_dataclass(objective) and not isinstance(objective, type):
        fields = dataclasses.asdict(objective).items()
        described = f"{type(objective).__name__}({', '.join(f'{name}={value}' for name, value in fields)})"
    data = os.path.basename(str(dataset_name)) if is_file else dataset_name
    reports = [f"{name}: {report}" for name, report in trainer.length_reports.items()]
    values = [(name, getattr(trainer.args, name, None)) for name in _SETTINGS]
    kind, versions = "AutoPeftModelForCausalLM" if is_adapter else "AutoModelForCausalLM", environment()["versions"]
    sections = [
        f"# {model_name or 'model'}",
        f"{'An adapter for' if is_adapter else 'Fine-tuned from'} {_code(origin)}, trained with the objective "
        f"{_code(described)}.",
        "loss = sum of w * cross-entropy over the trained tokens of the global batch / their number; the weight w "
        "of a token comes from the same forward pass and is not differentiated "
        "(*Which Tokens Should SFT Actually Learn?*).",
        "## Data",
        "\n\n".join([*([f"Dataset: {_code(data)}."] if data else []), *reports]) or "Not recorded.",
        "## Training",
        _table(("setting", "value"), [(name, getattr(value, "value", value)) for name, value in values]),
        "## Figures of the training",
        _measured(trainer.state.log_history),
        "## Use",
        f"```python\nfrom {'peft' if is_adapter else 'transformers'} import {kind}\n\n"
        f'model = {kind}.from_pretrained("PATH_OF_THIS_FOLDER")\n```',
        "## Versions",
        ", ".join(f"{name} {versions[name]}" for name in ("trimsft", "trl", "transformers", "torch", "datasets")),
    ]
    return ModelCard(f"---\n{header.to_yaml()}\n---\n\n" + "\n\n".join(sections) + "\n")


def _measured(history: list[dict[str, Any]]) -> str:
    labels, rows = figures_of(TelemetryLine, "label"), []
    named = [(name, labels[name]) for name in figures_of(TelemetryLine, "card")]
    for name, label in [*named, ("eval_loss", "evaluation loss"), ("eval_nll", "evaluation nll")]:
        logged = [record[key] for record in history for key in (name, PREFIX + name) if key in record]
        if logged:
            rows.append((label, f"{logged[0]:.4g}", f"{logged[-1]:.4g}"))
    return _table(("", "first log", "last log"), rows) if rows else "Nothing was logged."


def _table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _code(text: Any) -> str:
    return f"`{str(text).replace('`', '')}`"
