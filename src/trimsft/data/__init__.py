"""How a problem becomes tokens, for training, evaluation and the token table alike.

readers         a file         -> rows, each with the line it began on
rows            `DataConfig`   -> a dataset of checked rows
templates       a problem      -> a prompt
encoding        a row          -> prompt and completion tokens, truncated; also `load_tokenizer`
training_data                  -> input_ids and labels for the trainer; overlap with benchmarks, lengths
visible         the other way: what tokens say, with nothing hidden
"""
