"""Files that come with the package: recipes, examples, and the versions it is tested with.

    find_recipe("smollm2-gsm8k")               # .../recipes/smollm2-gsm8k.yaml, of a wheel or of a checkout
    copy_shipped(["accelerate"], Path("."))    # ./recipes/accelerate/ddp.yaml and the others

Names are paths in the repository, `recipes/accelerate/fsdp2.yaml`; `recipes/` and `.yaml` may be left out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trimsft.errors import UsageError
from trimsft.options import check_path, unknown_name
from trimsft.runs import write_whole
from trimsft.runs.parsing import parse_json

PLACES = ("recipes", "examples", "constraints.txt")
"""What is shipped, by its place in the repository; pyproject.toml puts the same into the wheel."""
PACKAGE = Path(__file__).parent


@dataclass(frozen=True)
class Shipped:
    """One file: its name in the repository and where it is here."""

    name: str
    path: Path

    @property
    def short_name(self) -> str:
        return self.name.removeprefix("recipes/").removesuffix(".yaml")

    def is_called(self, name: str) -> bool:
        """Return whether a name means this file."""
        return name.removeprefix("recipes/").removesuffix(".yaml") == self.short_name

    def is_in(self, folder: str) -> bool:
        """Return whether a name means a folder around this file."""
        inner = f"{folder.rstrip('/')}/"
        return self.name.startswith(inner) or self.short_name.startswith(inner)

    def title(self) -> str:
        """Return what the first comment, heading or docstring says, up to its first full stop, colon or bracket."""
        text = self.path.read_text(encoding="utf-8")
        lines = parse_json(text)["cells"][0]["source"] if self.path.suffix == ".ipynb" else text.splitlines()
        first = next((line for line in lines if line.startswith(("#", '"""')) and not line.startswith("#!")), "")
        sentence = first.strip('#" \n')
        for end in (". ", " (", ": ", "; "):
            sentence = sentence.partition(end)[0]
        return sentence.rstrip(".:")


def list_shipped() -> list[Shipped]:
    """Return every file, those of a wheel beside this module, those of a checkout in the repository; recipes first."""
    root = PACKAGE if (PACKAGE / PLACES[0]).is_dir() else PACKAGE.parents[1]
    paths = [path for place in PLACES for path in (root / place, *sorted((root / place).rglob("*"), key=_order))]
    files = [path for path in paths if path.is_file() and path.parent.name != "__pycache__"]
    return [Shipped(path.relative_to(root).as_posix(), path) for path in files]


def _order(path: Path) -> tuple[int, bool, str]:
    return len(path.parts), path.suffix != ".yaml", path.name


def find_recipe(name: str, *, field: str = "recipe") -> Path:
    """Return a file here, or a recipe that is shipped; `field` is the setting that an error blames."""
    check_path(field, name)
    if Path(name).exists():
        return Path(name).resolve()
    recipes = {Path(one.name): one for one in list_shipped() if one.path.suffix == ".yaml"}
    for one in recipes.values():
        if one.is_called(name):
            return one.path
    known = [one.short_name for path, one in recipes.items() if path.parent.name == "recipes"]
    hint = unknown_name(field, Path(name).name.removesuffix(".yaml"), known).hint
    raise UsageError("no such file, and no recipe of that name", field=field, value=name, hint=hint)


def select_shipped(names: Iterable[str]) -> list[Shipped]:
    """Return the files that names mean; a folder's name means all in it. No names mean all files."""
    files, selected = list_shipped(), []
    for name in names:
        called = [one for one in files if one.is_called(name) or one.is_in(name)]
        if not called:
            raise unknown_name("names", name, [one.short_name for one in files])
        selected += called
    return list(dict.fromkeys(selected)) or files


def copy_shipped(names: Sequence[str], folder: Path) -> list[Path]:
    """Copy files to where the repository has them, beneath `folder`; returns the copies.

    Raises:
        UsageError: a file is there with other content; nothing is written then.
    """
    folder = check_path("out", folder)
    copies = {folder / one.name: one.path.read_bytes() for one in select_shipped(names)}
    changed = [path for path, content in copies.items() if path.exists() and path.read_bytes() != content]
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        problem = f"{str(changed[0])!r}{more} is there already, and differs"
        raise UsageError(problem, field="out", hint="name another folder, or move it away")
    for path, content in copies.items():
        write_whole(path, content)
    return list(copies)
