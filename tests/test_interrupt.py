"""Ctrl-C and SIGTERM, whenever they come: one line, an exit code that tells which it was, and nothing half done."""

from __future__ import annotations

import signal
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from harness.execute.process import Child
from tests import cli

CODES = {"SIGINT": 130, "SIGTERM": 143}


@pytest.mark.parametrize("name", CODES)
def test_a_signal_amid_an_import_is_one_line_even_where_the_import_swallows_exceptions(
    name: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        f"import os, signal\ntry:\n    os.kill(os.getpid(), signal.{name})\nexcept BaseException:\n    pass\n"
    )
    done = cli.run("compare", str(file), "--dry-run", "--out", str(tmp_path / "out"))
    assert (done.returncode, done.stdout, done.stderr) == (CODES[name], "", "interrupted\n")


@pytest.mark.parametrize("name", CODES)
def test_a_signal_amid_work_says_by_the_exit_code_which_it_was(name: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    # A cost formula runs in the command's own process, long after the imports.
    stop = f"import os, signal\n    os.kill(os.getpid(), signal.{name})\n    return {{}}"
    file.write_text(
        "from dataclasses import dataclass\nfrom torch import nn\nfrom harness.spec import MixerSpec\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Config:\n    pass\nclass Layer(nn.Module):\n"
        "    def __init__(self, dims, config, *, layer_index, core):\n        super().__init__()\n"
        f"def cost(dims, config, length):\n    {stop}\n"
        "SPEC = MixerSpec(name='mine', Config=Config, Layer=Layer, cost=cost)\n"
    )
    words = ("softmax", str(file), "--match", "flops", "--dry-run", "--out", str(tmp_path / "out"))
    done = cli.run("compare", *words)
    assert (done.returncode, done.stdout, done.stderr) == (CODES[name], "", "interrupted\n")


def _tells_its_mask(pipe: Connection, setup: None, parent: int) -> None:
    pipe.send(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))


def test_ctrl_c_does_not_reach_a_worker_from_its_first_import_on() -> None:
    for _ in range(2):
        child = Child(_tells_its_mask, None)
        try:
            assert child.receive() is True
        finally:
            child.stop()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
