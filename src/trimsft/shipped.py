"""Files that come with the package: recipes, examples, and the versions it is tested with.

Names are paths in the repository, `recipes/accelerate/fsdp2.yaml`; `recipes/` and `.yaml` may be left out.
"""

from collections.abc import Sequence
from pathlib import Path

from trimsft.errors import UsageError
from trimsft.options import check_path, unknown_name
from trimsft.runs import write_whole

PLACES = ("recipes", "examples", "constraints.txt")
"""What is shipped, by its place in the repository; pyproject.toml puts the same into the wheel."""
PACKAGE = Path(__file__).parent


def list_shipped() -> dict[str, Path]:
    """Return every file by its name, of a wheel beside this module, of a checkout in the repository; recipes first."""
    root = PACKAGE if (PACKAGE / PLACES[0]).is_dir() else PACKAGE.parents[1]
    paths = [path for place in PLACES for path in (root / place, *(root / place).rglob("*"))]
    paths.sort(key=lambda path: (path.suffix != ".yaml", len(path.parts), path.as_posix()))
    return {p.relative_to(root).as_posix(): p for p in paths if p.is_file() and p.parent.name != "__pycache__"}


def find_recipe(name: str, *, field: str = "recipe") -> Path:
    """Return a file here, or a recipe that is shipped; `field` is the setting that an error blames."""
    check_path(field, name)
    if Path(name).exists():
        return Path(name).resolve()
    recipes = {_short(one): path for one, path in list_shipped().items() if path.suffix == ".yaml"}
    if _short(name) not in recipes:
        hint = unknown_name(field, name, [one for one in recipes if "/" not in one]).hint
        raise UsageError("no such file, and no recipe of that name", field=field, value=name, hint=hint)
    return recipes[_short(name)]


def copy_shipped(names: Sequence[str], folder: Path) -> list[Path]:
    """Copy files, all in a folder by its name, to where the repository has them, beneath `folder`; return the copies.

    Raises:
        UsageError: a file is there with other content, which is kept.
    """
    folder, everything, copies = check_path("out", folder), list_shipped(), list[Path]()
    for name in names:
        inside = tuple(f"{place}{name.rstrip('/')}/" for place in ("", "recipes/"))
        meant = [one for one in everything if name == "all" or _short(one) == _short(name) or one.startswith(inside)]
        if not meant:
            raise unknown_name("names", name, list(map(_short, everything)))
        for one in meant:
            copies.append(folder / one)
            content = everything[one].read_bytes()
            if copies[-1].exists() and copies[-1].read_bytes() != content:
                hint = "name another folder, or move it away"
                raise UsageError(f"{str(copies[-1])!r} is there already, and differs", field="out", hint=hint)
            write_whole(copies[-1], content)
    return copies


def _short(name: str) -> str:
    return name.removeprefix("recipes/").removesuffix(".yaml")
