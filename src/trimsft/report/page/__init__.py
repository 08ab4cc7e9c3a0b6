"""The page: one file that shows what was run, how it scored, and which tokens it learned from."""
