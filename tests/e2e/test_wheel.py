"""The wheel holds what it needs and runs on its own."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    (path,) = out.glob("*.whl")
    return path


def test_the_wheel_holds_types_recipes_data_and_licence(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for name in ("py.typed", "recipes/booking.toml", "recipes/booking-sft.toml"):
        assert f"steelyard/{name}" in names
    assert any(name.startswith("steelyard/tasks/booking/data/") and name.endswith(".json") for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_wheel_runs_outside_the_checkout(wheel, tmp_path):
    """Unpacked elsewhere: help, a shipped recipe, and the sandbox with its server started from the package itself."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    code = (
        "import steelyard, sys; assert steelyard.__file__.startswith(sys.argv[1]), steelyard.__file__\n"
        "from steelyard.tasks import load_task\n"
        "from steelyard.verify.programs import check_references\n"
        "from steelyard.verify.sandbox import Limits, Sandbox\n"
        "task = load_task('booking')\n"
        "with Sandbox(workers=1, limits=Limits()) as sandbox:\n"
        "    check_references(sandbox, task.suites['weak'], task.references)\n"
    )
    for command in (
        [sys.executable, "-m", "steelyard", "explain", "booking"],
        [sys.executable, "-c", code, str(tmp_path / "site")],
    ):
        result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
        assert result.returncode == 0, result.stderr
