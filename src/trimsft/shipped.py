"""Files that come with the package: recipes, examples, and the versions it is tested with.

    find_recipe("smollm2-gsm8k")               # .../recipes/smollm2-gsm8k.yaml, of a wheel or of a checkout
    copy_shipped(["accelerate"], Path("."))    # ./recipes/accelerate/ddp.yaml and the others

Names are paths in the repository, `recipes/accelerate/fsdp2.yaml`; `recipes/` and `.yaml` may be left out.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from trimsft.errors import UsageError, and_more
from trimsft.options import check_path, unknown_name
from trimsft.runs import write_whole

PLACES = ("recipes", "examples", "constraints.txt")
"""What is shipped, by its place in the repository; pyproject.toml puts the same into the wheel."""
PACKAGE = Path(__file__).parent


def list_shipped() -> dict[str, Path]:
    """Return every file by its name, of a wheel beside this module, of a checkout in the repository; recipes first."""
    root = PACKAGE if (PACKAGE / PLACES[0]).is_dir() else PACKAGE.parents[1]

    def order(path: Path) -> tuple[int, bool, str]:
        return len(path.parts), path.suffix != ".yaml", path.name

    paths = [path for place in PLACES for path in (root / place, *sorted((root / place).rglob("*"), key=order))]
    return {p.relative_to(root).as_posix(): p for p in paths if p.is_file() and p.parent.name != "__pycache__"}


def title_of(path: Path) -> str:
    """Return what the first comment, heading or docstring says, up to its first full stop, colon or bracket."""
    lines = path.read_text(encoding="utf-8").replace('"# ', "# ").splitlines()  # a notebook's heading is in quotes
    first = next((line.strip() for line in lines if line.strip().startswith(("# ", '"""'))), "")
    return re.split(r"[.:;] | \(", first.strip('#" \\n,'))[0].rstrip(".:")


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
    """Copy files to where the repository has them, beneath `folder`; without names all. Returns the copies.

    Raises:
        UsageError: a file is there with other content; nothing is written then.
    """
    folder, everything = check_path("out", folder), list_shipped()
    copies = {} if names else {folder / one: path.read_bytes() for one, path in everything.items()}
    for name in names:
        inner = f"{name.rstrip('/')}/"
        inside = (inner, f"recipes/{inner}")  # a folder's name means all in it
        meant = [one for one in everything if _short(one) == _short(name) or one.startswith(inside)]
        if not meant:
            raise unknown_name("names", name, list(map(_short, everything)))
        copies |= {folder / one: everything[one].read_bytes() for one in meant}
    changed = [path for path, content in copies.items() if path.exists() and path.read_bytes() != content]
    if changed:
        problem = f"{str(changed[0])!r}{and_more(len(changed), 'files')} is there already, and differs"
        raise UsageError(problem, field="out", hint="name another folder, or move it away")
    for path, content in copies.items():
        write_whole(path, content)
    return list(copies)


def _short(name: str) -> str:
    return name.removeprefix("recipes/").removesuffix(".yaml")
