import pytest

from steelyard.config import build
from steelyard.run.sft_recipe import SftRecipe


def small(**sections) -> SftRecipe:
    """A warm-up of a second: three steps of a model of one small block."""
    data = {
        "run": {"seed": 0, "threads": 1},
        "model": {"layers": 1, "width": 32, "heads": 2, "mlp_width": 32, "vocabulary": 320, "context": 512},
        "corpus": {"name": "booking", "programs": 40},
        "sft": {"steps": 3, "batch_tokens": 300},
    }
    for name, values in sections.items():
        data[name] = data.get(name, {}) | values
    return build(data, SftRecipe, where="test")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A model cache of this test's own."""
    monkeypatch.setenv("STEELYARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "sft"


@pytest.fixture(scope="session")
def recipe():
    return small
