"""How the objectives compare: many copies of one base trained at once, then sampled; for docs/objectives.md.

    llama.py       copies of a Llama, their parameters stacked
    training.py    the training of all copies in one loop, each under its own objective
    decoding.py    greedy decoding and samples of all copies
    objectives.py  the objectives that are compared, by what is written on the command line
    tables.py      means over seeds, paired differences, intervals
    tasks.py       the lab's conditions: rows, problems, what answers came to
    lab.py         the command for the lab: python -m benchmarks.weights.lab --help
    prepared.py    GSM8K, a mix and benchmarks as token ids in one file
    smollm2.py     the command for SmolLM2: python -m benchmarks.weights.smollm2 --help

What is trained is what `TrimSFTTrainer` trains: the classes of `trimsft.objectives`, AdamW with the settings of the
recipes, the same loss. tests/benchmarks/test_weights.py compares logits with those of transformers, and updates with
those of a plain loop around the fused head.
"""
