"""From rows to tokens, labels and weights, for training, evaluation and the token table alike."""
