"""--help is quick, shows examples, and imports nothing heavy."""

import subprocess
import sys

import pytest

from steelyard.cli import app

COMMANDS = ["init", "train", "sft", "dpo", "reward-model", "explain", "why", "card", "export"]
HEAVY = ["torch", "transformers", "scipy", "pydantic", "numpy", "matplotlib"]


def test_help_imports_nothing_heavy():
    code = (
        "import sys\n"
        "sys.argv = ['steelyard', '--help']\n"
        "from steelyard.cli import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert stop.code in (0, None), stop.code\n"
        f"loaded = [name for name in {HEAVY} if name in sys.modules]\n"
        "assert not loaded, loaded\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "train" in result.stdout


def test_importing_the_package_imports_nothing_heavy():
    code = f"import sys, steelyard; assert not [n for n in {HEAVY} if n in sys.modules]; steelyard.Recipe"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_table_of_commands_is_complete():
    assert sorted(command.callback.__name__.replace("_", "-") for command in app.registered_commands) == sorted(
        COMMANDS
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_examples(cli, command):
    result = cli(command, "--help")
    assert result.code == 0
    assert "Examples:" in result.out
    assert f"steelyard {command}" in result.out
