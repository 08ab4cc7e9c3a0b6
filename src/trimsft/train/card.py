"""The model card written beside a trained model: objective, data, settings and figures of the training."""

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
    base, is_adapter = get_config_model_id(trainer.model.config) or "", hasattr(trainer.model, "peft_config")
    # a folder or file of this machine is named without its path
    is_local, is_file = os.path.isdir(base), os.path.exists(str(dataset_name))
    header = ModelCardData(
        base_model=base if base and not is_local else None,
        datasets=[dataset_name] if dataset_name and not is_file else None,
        library_name="peft" if is_adapter else "transformers",
        model_name=model_name,
        tags=sorted({*trainer._tag_names, *([tags] if isinstance(tags, str) else tags or [])}),
        pipeline_tag="text-generation",
    )
    origin = (os.path.basename(base) if is_local else base) or "a local model"
    data = os.path.basename(str(dataset_name)) if is_file else dataset_name
    objective, versions = trainer.objective, environment()["versions"]
    values = [(name, getattr(trainer.args, name, None)) for name in _SETTINGS]
    labels, figures = figures_of(TelemetryLine, "label"), []
    named = [(name, labels[name]) for name in figures_of(TelemetryLine, "card")]
    for name, label in [*named, ("eval_loss", "evaluation loss"), ("eval_nll", "evaluation nll")]:
        logged = [record[key] for record in trainer.state.log_history for key in (name, PREFIX + name) if key in record]
        if logged:
            figures.append((label, f"{logged[0]:.4g}", f"{logged[-1]:.4g}"))
    sections = [
        f"# {model_name or 'model'}",
        f"{'An adapter for' if is_adapter else 'Fine-tuned from'} {_code(origin)}, trained with the objective "
        f"{_code(getattr(objective, '__name__', objective))}: loss = sum of w * cross-entropy over the trained tokens "
        "of the global batch / their number, w not differentiated (*Which Tokens Should SFT Actually Learn?*).",
        "## Data",
        *([f"Dataset: {_code(data)}."] if data else []),
        *(f"{name}: {report}" for name, report in trainer.length_reports.items()),
        "## Training",
        _table(("setting", "value"), [(name, getattr(value, "value", value)) for name, value in values]),
        _table(("", "first log", "last log"), figures) if figures else "Nothing was logged.",
        ", ".join(f"{name} {versions[name]}" for name in ("trimsft", "trl", "transformers", "torch", "datasets")),
    ]
    return ModelCard(f"---\n{header.to_yaml()}\n---\n\n" + "\n\n".join(sections) + "\n")


def _table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _code(text: Any) -> str:
    return f"`{str(text).replace('`', '')}`"
