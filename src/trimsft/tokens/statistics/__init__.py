"""What weights do to tokens: exact functions of a token table."""
