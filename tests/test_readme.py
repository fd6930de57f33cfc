"""The README's code runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_code_of_the_readme_runs(tmp_path: Path) -> None:
    code = "\n".join(re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL))
    assert "torchreel.record" in code
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "run.reel" / "meta.json").exists()


def test_the_pages_that_the_readme_names_are_there() -> None:
    for name in re.findall(r"\((docs/[^)]+)\)", README.read_text()):
        assert (README.parent / name).is_file(), name
