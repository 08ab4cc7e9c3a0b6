"""Everything the suite would download, made here: a cache of models and folders of datasets."""

from __future__ import annotations

from pathlib import Path

from . import datasets_local, models_local, vision, vision_models_local

DONE = "complete"


def silence() -> None:
    """No progress bar for each of some fifty small files."""
    import datasets
    import transformers

    datasets.disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()


def build_hub(folder: Path) -> None:
    """Writes all stand-ins below `folder` (hub/ for models, datasets/), once: a finished folder is kept."""
    if (folder / DONE).exists():
        return
    vision.declare_operators()
    silence()
    hub = folder / "hub"
    for name in models_local.TEXT_MODELS:
        models_local.write_text_model(hub, name)
    models_local.write_remote_model(hub)
    models_local.write_tokenizer_only(hub)
    for name in vision_models_local.VISION_MODELS:
        vision_models_local.write_vision_model(hub, name)
    for name in datasets_local.DATASETS:
        datasets_local.write_dataset(folder / "datasets" / name, name)
    (folder / DONE).write_text("")
