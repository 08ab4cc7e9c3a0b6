"""How the base model of the lab was made: corpus and tokenizer, pre-training, a look at the result, its folder."""
