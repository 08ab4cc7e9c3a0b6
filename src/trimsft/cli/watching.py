"""`trimsft watch`."""

import time

from trimsft.cli.base import make_console
from trimsft.cli.declared import command_of
from trimsft.report.watch import WatchSettings, look


@command_of(WatchSettings)
def watch(settings: WatchSettings) -> None:
    """See how a training is going, in small curves.

    Progress, loss, gap, weight and speed, until it ends; Ctrl-C ends the watch alone.

    \b
    Examples:
      trimsft watch runs/trim
      trimsft watch runs/quickstart --once
    """
    from rich.live import Live
    from rich.text import Text

    console, has_ended = make_console(), False
    with Live(console=console, auto_refresh=False) as live:  # where nobody sees it change, the last state alone
        while not has_ended:
            text, has_ended = look(settings.run.expanduser(), console.width)
            live.update(Text(f"{text}\n"), refresh=True)
            if settings.once or has_ended:
                return
            time.sleep(2)
