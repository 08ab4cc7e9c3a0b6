"""How cells are run: what is missing of them, side by side, here or on a cluster.

`training` and `steps` are what is done for one cell, `locks` says who does it; `execution` leads, with `workers` and
`slots` on this machine (`local`) or tasks on many (`ray_executor`); `progress` on `live` shows it as it goes, `status`
from what is on disk; `cost` says beforehand what it would take, from the `amounts` there are.
"""
