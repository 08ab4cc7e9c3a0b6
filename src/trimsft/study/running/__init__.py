"""How cells are run: what is missing of them, side by side, here or on a cluster.

`job` is what is done for one cell, with `training` for its settings and data and `launch` for processes that end with
their parent; `execution` leads, with `workers` and `slots` on this machine or tasks on many (`ray`); `status` says
how far it is; `checks` look before it starts, `cost` says what it would take.
"""
