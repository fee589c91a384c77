"""What a verb has to say, before anything is printed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a verb has to say; one that goes on for a while gives several.

    Args:
        payload: what `--json` prints, plain JSON types; None where this answer is for the screen alone.
        shown: what a screen of so many columns shows; a string is printed as it stands. None: nothing.
        told: lines for stderr, after it.
        code: exit code; of several answers the largest counts.
    """

    payload: Any = None
    shown: Callable[[int], RenderableType] | None = None
    told: Sequence[str] = ()
    code: int = 0


def teller(progress: Console) -> Callable[[str], None]:
    """Says lines on the screen of the progress, as they are."""

    def tell(line: str) -> None:
        progress.print(line, markup=False, emoji=False, highlight=False, soft_wrap=True)

    return tell
