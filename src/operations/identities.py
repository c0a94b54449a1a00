"""Identifiers of our own business objects: derived, so that a second run finds the same."""

import base64
import hashlib


def business_id(prefix: str, *, workflow_id: str) -> str:
    """An identifier such as `ord_5k2…`: the prefix, and 100 bits that only this operation has."""
    digest = hashlib.sha256(f"tallystick/business-id/1/{prefix}/{workflow_id}".encode()).digest()
    return f"{prefix}_{base64.b32encode(digest).decode('ascii').lower()[:20]}"
