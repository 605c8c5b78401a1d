"""Parts that need no server: what is written on the wire and what is read from it."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import cove
from cove import AsyncCove, Cove, _core, _operations, errors
from cove._async import (
    _agents,
    _audit,
    _catalog,
    _client,
    _contexts,
    _executions,
    _files,
    _nodes,
    _sessions,
    _streams,
    _templates,
    _tenants,
    _terminal,
)
from cove._config import find_token, find_url
from cove._sse import EventReader
from cove._websocket import FrameReader, Opcode, frame


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_are_read_however_they_are_cut(size: int) -> None:
    text = (
        ': comment\r\n\r\nid: 1\ndata: {"a":\ndata: 1}\n\nevent: x\ndata:{"b":"\u00e9"}\n\ndata: {'
    )
    reader, raw = EventReader(), text.encode()
    found = [
        event
        for start in range(0, len(raw), size)
        for event in reader.feed(raw[start : start + size])
    ]
    assert [(event.id, event.data) for event in found] == [("1", {"a": 1}), (None, {"b": "\u00e9"})]
    with pytest.raises(errors.CoveError, match="not JSON"):
        EventReader().feed(b"data: x\n\n")


def unmasked(data: bytes) -> bytes:
    """A frame as a server would send it, of one that a client would."""
    size = data[1] & 0x7F
    at = 2 + {126: 2, 127: 8}.get(size, 0)
    mask, payload = data[at : at + 4], data[at + 4 :]
    plain = bytes(byte ^ mask[number % 4] for number, byte in enumerate(payload))
    return bytes([data[0], size]) + data[2:at] + plain


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, 200_000])
def test_frames_come_back_as_they_were_sent(size: int) -> None:
    payload = os.urandom(size)
    raw = unmasked(frame(Opcode.BINARY, payload))
    for step in (1, 4096) if size < 1000 else (4096,):
        reader = FrameReader()
        found: list[str | bytes] = []
        for start in range(0, len(raw), step):
            found += reader.feed(raw[start : start + step])
        assert found == [payload]


def test_messages_in_pieces_pings_and_closes() -> None:
    reader = FrameReader()
    pieces = b"\x01\x02he" + b"\x89\x01x" + b"\x80\x03llo" + b"\x88\x06\x03\xe8good"
    assert reader.feed(pieces) == ["hello"]
    assert [unmasked(it) for it in reader.answers] == [b"\x8a\x01x", b"\x88\x02\x03\xe8"]
    assert reader.closed is not None
    assert (reader.closed.code, reader.closed.reason) == (1000, "good")


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"\xc1\x00", 1002),
        (b"\x81\x80", 1002),
        (b"\x80\x00", 1002),
        (b"\x83\x00", 1002),
        (b"\x81\x01\xff", 1007),
        (b"\x82\x7f" + (1 << 40).to_bytes(8, "big"), 1009),
        (b"\x01\x01a\x81\x01b", 1002),
    ],
)
def test_frames_that_break_the_protocol_end_the_connection(raw: bytes, code: int) -> None:
    reader = FrameReader()
    assert reader.feed(raw) == []
    assert reader.closed is not None
    assert reader.closed.code == code


def test_paths_lead_where_they_say_and_nowhere_else() -> None:
    def path(name: str) -> str:
        return _core.path_of(_operations.READ_FILE, {"id": "s", "path": name})

    assert path("src/main.py") == "/v1/sessions/s/files/src/main.py"
    assert path("/etc/passwd") == "/v1/sessions/s/files/%2Fetc/passwd"
    assert path("../../x") == "/v1/sessions/s/files/%2E%2E/%2E%2E/x"
    assert path("~/a b?#%") == "/v1/sessions/s/files/~/a%20b%3F%23%25"
    assert _core.path_of(_operations.GET_AGENT, {"name": "../x"}) == "/v1/agents/..%2Fx"
    assert _core.path_of(_operations.GET_AGENT, {"name": ".."}) == "/v1/agents/%2E%2E"
    with pytest.raises(ValueError, match="name must not be empty"):
        _core.path_of(_operations.GET_AGENT, {"name": ""})
    with pytest.raises(ValueError, match="missing"):
        _core.path_of(_operations.GET_AGENT, {})


def test_errors_are_what_their_documents_say() -> None:
    def error(status: int, body: Any, **headers: str) -> errors.APIError:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return _core.error_of(status, {k.replace("_", "-"): v for k, v in headers.items()}, raw)

    document = {"error": {"code": "gone", "message": "over", "field": "id", "retry": False}}
    found = error(410, document, x_request_id="req_1", retry_after="7")
    assert isinstance(found, errors.GoneError)
    assert (found.field, found.request_id, found.retry_after) == ("id", "req_1", 7.0)
    assert found.details == document["error"]
    assert str(found) == "id: over (410, gone, request req_1)"
    # Codes of a later server, other shapes and no shape: by the status.
    assert type(error(404, {"error": {"code": "new_one", "message": "x"}})) is errors.NotFoundError
    iceberg = {"error": {"code": 404, "type": "NoSuchTableException", "message": "x"}}
    assert type(error(404, iceberg)) is errors.NotFoundError
    assert error(404, iceberg).code == "NoSuchTableException"
    assert type(error(418, b"<html>")) is errors.APIError
    assert error(500, b"").message == "answered with 500"
    assert error(503, b"[]", retry_after="Wed, 21 Oct 2015 07:28:00 GMT").retry_after == 0.0
    codes = set(_core.BY_CODE)
    assert {kind.__name__ for kind in _core.BY_CODE.values()} <= set(errors.__all__)
    assert len(codes) == 17


def test_the_server_and_the_token_are_found_as_the_command_line_finds_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("COVE_URL", raising=False)
    monkeypatch.delenv("COVE_TOKEN", raising=False)
    monkeypatch.setenv("COVE_DATA_DIR", str(tmp_path))
    assert find_url(None) == "http://127.0.0.1:4100"
    assert find_token(None, "http://localhost:1") is None
    (tmp_path / "addresses.json").write_text('{"http":"127.0.0.1:5000"}')
    (tmp_path / "token").write_text("of-the-directory\n")
    assert find_url(None) == "http://127.0.0.1:5000"
    assert find_token(None, "http://[::1]:1") == "of-the-directory"
    # It is for no other machine.
    assert find_token(None, "https://cove.example") is None
    monkeypatch.setenv("COVE_URL", "https://cove.example/")
    monkeypatch.setenv("COVE_TOKEN", "of-the-environment")
    assert find_url(None) == "https://cove.example"
    assert find_token(None, "https://cove.example") == "of-the-environment"
    assert find_token("given", "https://cove.example") == "given"
    for bad in ("cove.example", "ftp://x", "http://x/?a=b"):
        with pytest.raises(ValueError, match="address"):
            find_url(bad)


def test_every_operation_has_a_method() -> None:
    modules = [_agents, _audit, _catalog, _client, _contexts, _executions, _files, _nodes]
    modules += [_sessions, _streams, _templates, _tenants, _terminal]
    source = "".join(inspect.getsource(module) for module in modules)
    used = set(re.findall(r"\bops\.([A-Z_]+)", source))
    known = {name for name in vars(_operations) if name.isupper()} - {"TYPE_CHECKING"}
    assert used == known


def test_both_clients_have_the_same_names() -> None:
    def names(kind: type) -> set[str]:
        renamed = {"aclose": "close"}
        plain = {renamed.get(name, name) for name in vars(kind)}
        return {name for name in plain if not name.startswith("_")}

    pairs = [
        (name, name.removeprefix("Async")) for name in cove.__all__ if name.startswith("Async")
    ]
    assert len(pairs) == 10
    for one, other in pairs:
        assert names(getattr(cove, one)) == names(getattr(cove, other)), one
    with Cove("http://127.0.0.1:1", "t") as blocking:
        asynchronous = AsyncCove("http://127.0.0.1:1", "t")
        for name, part in vars(blocking).items():
            if not name.startswith("_"):
                assert names(part.__class__) == names(getattr(asynchronous, name).__class__), name


def test_importing_costs_little_beyond_httpx() -> None:
    """The documents' types are for checkers: nothing of them is loaded."""
    program = (
        "import sys, httpx, httpcore, asyncio; before = set(sys.modules); import cove;"
        "print(*sorted(set(sys.modules) - before))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = run.stdout.split()
    assert "cove" in loaded
    assert "cove.types" not in loaded
    assert [name for name in loaded if not name.startswith("cove")] == []
