"""`python -m trimsft.cli`."""

from trimsft.cli import app

if __name__ == "__main__":
    app(prog_name="trimsft")
