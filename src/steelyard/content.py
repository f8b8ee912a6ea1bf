"""One name for equal content, wherever content is compared or recorded."""

import hashlib
import json


def content_hash(value: object) -> str:
    """SHA-256 of the canonical JSON of plain JSON data, as 64 hex digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
