import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # attacks.py and tools.py are data and helpers of this folder

os.environ["STEELYARD_TEST_SECRET"] = "in the trainer's environment"

from tools import QUICK  # noqa: E402 - after the path is set

from steelyard.verify.sandbox import Sandbox  # noqa: E402


@pytest.fixture(scope="session")
def sandbox():
    with Sandbox(workers=2, limits=QUICK) as opened:
        yield opened
