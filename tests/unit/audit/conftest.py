import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # strength_tools.py

from strength_tools import QUICK

from steelyard.verify.sandbox import Sandbox


@pytest.fixture(scope="session")
def sandbox():
    with Sandbox(workers=2, limits=QUICK) as opened:
        yield opened
