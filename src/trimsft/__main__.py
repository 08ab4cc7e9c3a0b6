"""`python -m trimsft`, for `accelerate launch -m` and `torchrun -m`."""

from trimsft.cli import main

if __name__ == "__main__":
    main()
