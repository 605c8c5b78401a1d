"""Every program of the documentation is run, page by page, as a reader would type it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = ["sdk/python/README.md", "docs/sdk-python.md"]


def programs(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)


@pytest.mark.parametrize("page", PAGES)
def test_the_programs_of_a_page_run(page: str) -> None:
    found = programs(page)
    assert found
    namespace: dict[str, Any] = {"__name__": "__page__"}
    for number, program in enumerate(found, 1):
        exec(compile(program, f"{page} program {number}", "exec"), namespace)
    if "cove" in namespace:
        namespace["cove"].close()


@pytest.mark.parametrize("page", PAGES)
def test_the_programs_of_a_page_have_the_right_types(page: str, tmp_path: Path) -> None:
    file = tmp_path / "page.py"
    file.write_text("\n".join(programs(page)))
    check = [sys.executable, "-m", "mypy", "--strict", "--config-file=", str(file)]
    run = subprocess.run(check, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
