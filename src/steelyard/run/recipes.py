"""Finding a recipe: a file on disk, or one that is shipped with the package."""

import importlib.resources
from pathlib import Path

SHIPPED = "recipes"


def find_recipe(text: str) -> Path:
    """Return the file that a recipe argument names.

    A file on disk wins; otherwise `recipes/booking.toml`, `booking.toml` and `booking` all name the recipe that
    is shipped with the package. A name that is neither is returned as it is, for the reader to refuse.
    """
    path = Path(text)
    if path.exists():
        return path
    name = path.name if path.suffix == ".toml" else f"{path.name}.toml"
    if path.parent in (Path(), Path(SHIPPED)):
        for directory in shipped_directories():
            if (directory / name).is_file():
                return directory / name
    return path


def shipped_directories() -> list[Path]:
    """Return where shipped recipes may be: inside the installed package, or beside src in a checkout."""
    package = Path(str(importlib.resources.files("steelyard")))
    return [package / SHIPPED, package.parent.parent / SHIPPED]
