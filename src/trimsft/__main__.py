"""`python -m trimsft`, for `accelerate launch -m` and `torchrun -m`."""

from trimsft.cli import app

if __name__ == "__main__":
    app(prog_name="trimsft")
