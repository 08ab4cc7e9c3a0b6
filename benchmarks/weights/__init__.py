"""How the objectives compare: many copies of one base trained at once, then sampled; for docs/objectives.md.

    architectures.py  what a Llama and a Gemma-3 differ in
    stacked.py        copies of one model, their parameters stacked
    training.py       the training of all copies in one loop, each under its own objective
    decoding.py       samples of all copies at several temperatures
    objectives.py     the objectives that are compared, by what is written on the command line
    tables.py         means over seeds, paired differences, intervals
    conditions.py     the conditions of the arena, drawn at random or named
    tasks.py          rows of a condition, problems, what answers came to
    rules.py          rules that are tried beside the package's own
    arena.py          the command for the lab: python -m benchmarks.weights.arena --help
    prepared.py       GSM8K, a mix and benchmarks as token ids in one file
    real.py           the command for real models: python -m benchmarks.weights.real --help

What is trained is what `TrimSFTTrainer` trains: the classes of `trimsft.objectives`, AdamW with the settings of the
recipes, the same loss. tests/benchmarks/test_weights.py compares logits with those of transformers, and updates with
those of a plain loop around the fused head.
"""
