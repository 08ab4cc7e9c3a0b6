"""Links of a page by their address in the repository, for readers who have the page alone.

absolute("[how](docs/method.md)", "https://host/owner/name")
# [how](https://host/owner/name/blob/main/docs/method.md)
"""

import posixpath
import re
from collections.abc import Callable

LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")


def absolute(
    text: str, address: str, *, folder: str = "", is_kept: Callable[[str], bool] = lambda target: False
) -> str:
    """Return Markdown with absolute links; pictures lead to the file itself.

    Args:
        address: of the repository.
        folder: where the page is in it.
        is_kept: whether a link to a path of the repository stays as it is.
    """

    def replaced(link: re.Match[str]) -> str:
        target = link["target"]
        if re.match(r"[a-z]+:|#|/", target):
            return link[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        if is_kept(path.partition("#")[0]):
            return link[0]
        return f"{link['picture']}[{link['text']}]({address}/{'raw' if link['picture'] else 'blob'}/main/{path})"

    return LINK.sub(replaced, text)
