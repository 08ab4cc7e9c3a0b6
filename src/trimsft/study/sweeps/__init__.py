"""Grids of one's own: `grid` reads what is varied, `sweep` makes cells of it and chooses among them, `writing` says
what came out, `command` is the command line's.
"""
