import os
import sys
from pathlib import Path

import pytest

sys.path.insert(
    0, str(Path(__file__).parent)
)  # sandbox_attacks.py and sandbox_tools.py are data and helpers of this folder

os.environ["STEELYARD_TEST_SECRET"] = "in the trainer's environment"

from sandbox_tools import QUICK

from steelyard.verify.sandbox import Sandbox


@pytest.fixture(scope="session")
def sandbox():
    with Sandbox(workers=2, limits=QUICK) as opened:
        yield opened
