"""The Content-Security-Policy of a page that is one file: it runs its own script and style, and loads nothing."""

import base64
import hashlib


def policy(script: str, style: str) -> str:
    """Return the policy that allows one inline script, one inline style, and pictures within the page."""
    return (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
