"""Files that come with the package: recipes, examples, and the versions it is tested with.

Names are paths in the repository; `recipes/` and `.yaml` may be left out.
"""

from pathlib import Path

from trimsft.errors import UsageError
from trimsft.options import unknown_name
from trimsft.runs import write_whole

PLACES = ("recipes", "examples", "constraints.txt")
"""What is shipped, by its place in the repository; pyproject.toml puts the same into the wheel."""
PACKAGE = Path(__file__).parent


def list_shipped() -> dict[str, Path]:
    """Return every file by its name, of a wheel or of a checkout; recipes first."""
    root = PACKAGE if (PACKAGE / PLACES[0]).is_dir() else PACKAGE.parents[1]
    paths = [path for place in PLACES for path in (root / place, *(root / place).rglob("*"))]
    paths.sort(key=lambda path: (path.suffix != ".yaml", len(path.parts), path.as_posix()))
    return {p.relative_to(root).as_posix(): p for p in paths if p.is_file() and p.parent.name != "__pycache__"}


def find_recipe(name: str, *, field: str = "recipe") -> Path:
    """Return a file here, or a recipe that is shipped; an error is about `field`."""
    if Path(name).exists():
        return Path(name).resolve()
    recipes = {_short(one): path for one, path in list_shipped().items() if path.suffix == ".yaml"}
    if _short(name) not in recipes:
        hint = unknown_name(field, name, [one for one in recipes if "/" not in one]).hint
        raise UsageError("no such file, and no recipe of that name", field=field, value=name, hint=hint)
    return recipes[_short(name)]


def copy_shipped(folder: Path) -> list[Path]:
    """Copy every file to where the repository has it; refuse to replace one."""
    copies = {folder.expanduser() / name: path.read_bytes() for name, path in list_shipped().items()}
    if there := [str(path) for path in copies if path.exists()]:
        hint = "name another folder, or move it away"
        raise UsageError(f"{there[0]!r} is there already", field="out", hint=hint)
    for path, content in copies.items():
        write_whole(path, content)
    return list(copies)


def _short(name: str) -> str:
    return name.removeprefix("recipes/").removesuffix(".yaml")
