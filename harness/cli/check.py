"""The verb `check`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, UseAppendAction, arg

from harness.cli.answer import Answer
from harness.cli.flags import Common

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from harness.commands.check import Checked


@dataclass(kw_only=True)
class Check(Common):
    """Hold variants to the contract: causality, decoding, gradients, precision, each backend, each switch off.

    Example: run.py check lazy my_mixer.py
    """

    names: Annotated[Positional[tuple[str, ...]], arg(metavar="NAME ...")] = ()
    """NAME, NAME[field=value,...], a path to your own variant, or all."""
    claim: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="CLAIM")] = ()
    """This claim alone; may be repeated."""

    def run(self, progress: Console) -> Iterator[Answer]:
        """Check one variant after the other; each is answered as soon as it is done."""
        from rich.text import Text

        from harness.commands.check import check

        payloads = []
        with progress.status("") as status:
            for checked in check(self.names, self.claim, lambda word: status.update(Text(f"checking {word}"))):
                payloads.append(checked.payload())
                # On one terminal the status line and the table would be written over each other.
                status.stop()
                yield _checked(checked)
                status.start()
        yield Answer(payload=payloads[0] if len(payloads) == 1 else payloads)


def _checked(checked: Checked) -> Answer:
    def shown(width: int) -> RenderableType:
        from harness import report
        from harness.contract.examine import DIMS

        size = f"width {DIMS.model_dim}, {DIMS.num_heads} heads"
        return report.checks(checked.variant, checked.groups, checked.seconds, size)

    return Answer(shown=shown, code=0 if checked.passed else 1)
