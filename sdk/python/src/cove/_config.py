"""Where the server is and which token it gets, found as the command line does."""

from __future__ import annotations

import ipaddress
import json
import os
from pathlib import Path
from urllib.parse import urlsplit

DEFAULT_URL = "http://127.0.0.1:4100"


def find_url(url: str | None) -> str:
    """The server's address: given, `COVE_URL`, the data directory's, or the default."""
    named = url or os.environ.get("COVE_URL")
    if named is None:
        return _address_in(_data_dir()) or DEFAULT_URL
    parts = urlsplit(named)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"the server's address must begin with http:// or https://: {named!r}")
    if parts.query or parts.fragment:
        raise ValueError(f"the server's address is that of a page: {named!r}")
    return named.rstrip("/")


def find_token(token: str | None, url: str) -> str | None:
    """The token: given, `COVE_TOKEN`, or for a server on this machine the data directory's."""
    found = token or os.environ.get("COVE_TOKEN")
    if found is None and _is_local(url):
        found = _read(_data_dir() / "token")
    return found.strip() if found else None


def _data_dir() -> Path:
    named = os.environ.get("COVE_DATA_DIR")
    if named:
        return Path(named)
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    return Path("/var/lib/cove") if is_root else Path.home() / ".local/share/cove"


def _address_in(directory: Path) -> str | None:
    text = _read(directory / "addresses.json")
    try:
        address = json.loads(text)["http"] if text else None
    except (ValueError, KeyError, TypeError):
        return None
    return f"http://{address}" if isinstance(address, str) else None


def _is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return address.is_loopback or address.is_unspecified


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return None
