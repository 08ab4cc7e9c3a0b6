"""How a problem becomes tokens: rows, templates, tokenising, masking, truncating, hidden characters made visible."""
