"""`python -m trimsft`, for `accelerate launch -m` and `torchrun -m`."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the current folder, which `python -m` puts first: an installed `trimsft` has it not, either

from trimsft.cli import main

if __name__ == "__main__":
    main()
