"""`python -m trimsft`, for `accelerate launch -m` and `torchrun -m`."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the current folder, which `python -m` puts first and an installed `trimsft` does not
    from trimsft.cli import main

    main()
