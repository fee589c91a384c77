from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.records import ExperimentFile, Store
from harness.report import write_page
from tests import fakes
from tests.test_report_page import measured as measured

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--proxy-server=127.0.0.1:9", "--window-size=1280,900",
    "--enable-logging=stderr", "--v=0", "--virtual-time-budget=5000", "--dump-dom",
)  # fmt: skip

COUNT = """<script>addEventListener("load", () => {
  const drawn = [...document.images].filter(i => i.complete && i.naturalWidth > 100 && i.naturalHeight > 50);
  const seen = drawn.map(i => i.getBoundingClientRect()).filter(box => box.width > 400 && box.height > 50);
  const fetched = performance.getEntriesByType("resource").filter(entry => !entry.name.startsWith("data:"));
  const wide = document.documentElement.scrollWidth > innerWidth ? "wider than the window" : "fits the window";
  document.title = `${seen.length} of ${document.images.length} drawn, ${fetched.length} fetched, ${wide}`;
})</script>"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")


def opened(page: str, folder: Path) -> tuple[str, list[str]]:
    """What a browser without network made of a page: the counts of the script above, and its console."""
    # The page forbids scripts; its copy has to let the one in that counts.
    probe = page.replace("style-src", "script-src 'unsafe-inline'; style-src").replace("</body>", f"{COUNT}</body>")
    assert probe.count("script-src") == 1 and COUNT in probe
    (folder / "probe.html").write_text(probe)
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={folder / 'profile'}", (folder / "probe.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    title = re.search("<title>(.*)</title>", done.stdout)
    assert title is not None, done.stderr[-2000:]
    return title[1], re.findall(r"CONSOLE.*", done.stderr)


def test_a_browser_draws_every_figure_and_asks_the_network_for_nothing(
    measured: tuple[ExperimentFile, Store], tmp_path: Path
) -> None:
    page, *files = write_page(*measured)
    count = len(files) // 2
    assert count >= 7
    title, console = opened(page.read_text(), tmp_path)
    assert title == f"{count} of {count} drawn, 0 fetched, fits the window"
    assert console == []


def test_a_page_that_asks_the_network_or_cannot_be_drawn_is_found_out(tmp_path: Path) -> None:
    page = write_page(*fakes.study(tmp_path, {"softmax": [2.0, 2.1], "lazy": [1.9, 2.0]}))[0].read_text()
    worse = page.replace("</main>", '<img src="http://example.invalid/a.png"><img src="data:,none"></main>')
    title, console = opened(worse, tmp_path)
    assert title.startswith("1 of 3 drawn")
    assert any("http://example.invalid/a.png" in line for line in console)
