"""From problems to tokens, for training, evaluation and the token table alike.

formats         the forms of rows, by their columns
load            settings       -> rows of files or of the hub, checked
templates       a problem      -> a prompt
encode          a row          -> tokens and labels, truncated; also `load_tokenizer`, lengths
overlap         training problems that are benchmark problems
chat            rows of messages and other forms of TRL -> tokens
visible         the other way: what tokens say, with nothing hidden
"""
