"""How a problem becomes tokens, for training, evaluation and the token table alike.

    readers     a file         -> rows, each with the line it began on
    rows        settings       -> a dataset of checked rows (`DataConfig`: data_config)
    templates   a problem      -> a prompt (families: the template that suits a tokenizer)
    encoding    a row          -> prompt and completion tokens, truncated; also `load_tokenizer`
    training_data              -> input_ids and labels for the trainer; overlap: rows that are benchmark problems
    lengths                    how long rows are, and what truncation takes

`visible` and `token_texts` go the other way: what tokens say, with nothing hidden.
"""
