#!/usr/bin/env python3
"""Tests of the harness of sessions, without a server: `python3 bench/test_sessions.py`."""

import contextlib
import json
import pathlib
import socket
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import sessions
from sessions import cases, figures, servers
from sessions.servers import ASH, COVE, Ash, Cove
from sessions.wire import Incoming, Refused, Wire, unchunked

WHOLE = b"HTTP/1.1 201 Created\r\ncontent-length: 8\r\n\r\n" + b'{"a": 1}'
STREAM = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'1c\r\nid: 1\nevent: text\ndata: {"a"\r\n6\r\n: 1}\n\n\r\n16\r\nevent: done\ndata: {}\n\n\r\n0\r\n\r\n'
)


@contextlib.contextmanager
def answering(*answers):
    """A server that answers one request on each connection with these pieces, then closes it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            for pieces in answers:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(1 << 16)
                    for piece in pieces:
                        connection.sendall(piece)
                        time.sleep(0.002)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


class OnTheWire(unittest.TestCase):
    def test_answers_are_whole_however_they_are_cut(self):
        for raw, body in ((WHOLE, b'{"a": 1}'), (STREAM, b"event: done")):
            for size in (1, 7, len(raw)):
                incoming = Incoming()
                pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
                complete = [incoming.add(piece, at) for at, piece in enumerate(pieces)]
                self.assertEqual(complete, [False] * (len(pieces) - 1) + [True])
                self.assertIn(body, incoming.answer(0, 1).body)

    def test_a_marker_has_arrived_with_its_last_byte(self):
        incoming, at = Incoming(), STREAM.index(b"event: done") + 4
        incoming.add(STREAM[:at], 5_000)
        self.assertTrue(incoming.add(STREAM[at:], 9_000))
        answer = incoming.answer(1_000, 9_000)
        self.assertEqual(answer.arrived(b"event: text\n"), 4.0)
        self.assertEqual(answer.arrived(b"event: done\n"), 8.0)
        self.assertEqual(answer.events(), [("text", {"a": 1}), ("done", {})])
        with self.assertRaises(Refused):
            answer.arrived(b"event: error")

    def test_a_connection_that_was_closed_is_made_anew(self):
        with answering([WHOLE], [WHOLE]) as address:
            wire = Wire(address, "t")
            self.assertEqual(wire.call("POST", "/").json(201), {"a": 1})
            servers.until(wire.was_closed, "the end of the connection")
            self.assertEqual(wire.call("POST", "/").json(201), {"a": 1})
            wire.close()

    def test_of_many_at_once_each_has_its_own_outcome(self):
        with answering([WHOLE], [b"HTTP/1.1 200"], [WHOLE]) as address:
            wire = Wire(address, "t")
            answers = wire.all_at_once([wire.bytes_of("POST", "/", {})] * 3)
        right = [answer for answer in answers if not isinstance(answer, Exception)]
        self.assertEqual([answer.status for answer in right], [201, 201])

    def test_another_status_is_refused(self):
        incoming = Incoming()
        incoming.add(WHOLE, 1)
        with self.assertRaises(Refused):
            incoming.answer(0, 1).json(200)

    def test_chunks_of_no_length_end_a_body(self):
        self.assertEqual(unchunked(b"2;x=y\r\nab\r\n1\r\nc\r\n0\r\n\r\n"), b"abc")


class Said:
    """An answer with these events."""

    def __init__(self, *events):
        self._events = list(events)

    def events(self):
        return self._events


def cove_turn(turn="t1", reply="hi", last="done"):
    result = json.dumps({"turn": "t1", "told": 1000, "answered": 6000, "reply": reply})
    complete = {"turn": turn, "data": {"result": result}}
    return Said(("turn_start", {"turn": "t1"}), ("turn_complete", complete), (last, {"turn": "t1"}))


class Turns(unittest.TestCase):
    def check(self, server, said, text, expected):
        if expected is None:
            self.assertRaises(Refused, server.turn, object.__new__(server), said, text)
        else:
            self.assertEqual(server.turn(object.__new__(server), said, text), expected)

    def test_the_agents_time_is_that_of_the_very_turn(self):
        self.check(Cove, cove_turn(), "hi", 5.0)
        self.check(Cove, cove_turn(), "other", None)
        self.check(Cove, cove_turn(turn="t2"), "hi", None)
        self.check(Cove, cove_turn(last="error"), "hi", None)

    def test_ashs_stand_in_sleeps_twice_in_a_first_turn_only(self):
        def said(text, *kinds):
            return Said(("message", {"text": text}), *((kind, {}) for kind in kinds))

        self.check(Ash, said("[Resumed session]", "done"), "hi", 50_000)
        self.check(Ash, said("Turn 1: hi", "turn_complete", "done"), "hi", 100_000)
        self.check(Ash, said("Turn 1: hi", "done"), "hi", None)
        self.check(Ash, said("Turn 1", "turn_complete", "done"), "hi", None)
        self.check(Ash, said("[Resumed session]", "error", "done"), "hi", None)

    def test_the_agent_answers_and_remembers(self):
        def user(text):
            return {"type": "user", "turn": f"t-{text}", "message": {"content": text}}

        with servers.tempfile.TemporaryDirectory() as home:
            told = [{"type": "start", "session": "s", "conversation": None}]
            told += [user("remember me"), user("recall")]
            done = subprocess.run(
                [sys.executable, servers.HERE / "clock.py"],
                input="".join(json.dumps(line) + "\n" for line in told),
                env={"HOME": home}, capture_output=True, text=True, check=True,
            )  # fmt: skip
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        results = [json.loads(line["result"]) for line in lines if line["type"] == "result"]
        self.assertEqual([result["reply"] for result in results], ["remember me", "me\n"])
        self.assertEqual([result["turn"] for result in results], ["t-remember me", "t-recall"])
        self.assertTrue(all(result["told"] < result["answered"] for result in results))


def batch(case, rival, times_ms, failures=0, notes=None, **parts):
    samples = cases.Samples(case, rival)
    for number, ms in enumerate(times_ms):
        samples.add(ms * 1000, **{name: of[number] * 1000 for name, of in parts.items()})
    for _ in range(failures):
        samples.fail(Refused("it broke"))
    samples.notes, samples.seconds = notes or {}, 1.0
    return samples.document()


def document(*batches, **more):
    return {"batches": list(batches), "unavailable": {}, "versions": {}, "left": [], **more}


def met(found, name, target):
    (goal,) = (g for g in figures.goals(found) if name in g.name and target in g.target)
    return goal.met


class Figures(unittest.TestCase):
    def test_what_was_not_measured_is_neither_met_nor_missed(self):
        self.assertEqual({goal.met for goal in figures.goals(document())}, {None})
        self.assertEqual(figures.goals({}), [])
        self.assertEqual(figures.text({}), [])

    def test_a_latency_is_met_without_failures_only(self):
        name = "Message:"
        self.assertTrue(met(document(batch("message", COVE, [0.4] * 100)), name, "p50"))
        slow = document(batch("message", COVE, [0.4] * 98 + [3, 3]))
        self.assertTrue(met(slow, name, "p50"))
        self.assertFalse(met(slow, name, "p99"))
        self.assertFalse(met(document(batch("message", COVE, [0.6])), name, "p50"))
        self.assertFalse(met(document(batch("message", COVE, [0.4], failures=1)), name, "p50"))

    def test_a_hundred_at_once_are_all_of_them_and_soon(self):
        def judged(total_ms, failures=0):
            one = batch("concurrent", COVE, [5.0] * 100, failures, {"total_ms": total_ms})
            return met(document(one), "100 concurrent", "all succeed")

        self.assertTrue(judged(1400))
        self.assertFalse(judged(1600))
        self.assertFalse(judged(1400, failures=1))

    def test_memory_counts_the_kernels_as_well(self):
        def judged(kib, kernel):
            notes = {"sessions": 50, "kernel_kib_each": kernel, "processes_each": 2.0}
            notes["server_rss_kib_each"] = 10.0
            one = batch("memory", sessions.COVE_IDLE, [kib / 1000], notes=notes)
            return met(document(one), "memory per idle", "2 MiB")

        self.assertTrue(judged(200, 600))
        self.assertTrue(judged(200, -600))
        self.assertFalse(judged(1500, 600))

    def test_the_report_has_parts_failures_and_what_is_missing(self):
        found = document(
            batch("create", COVE, [3.0, 4.0], failures=1, first_message=[30.0, 40.0]),
            batch("create", ASH, [220.0]),
            pool={"rows": [
                {"name": "count", "n": 9, "p50_ns": 20.0, "p95_ns": 1, "p99_ns": 1, "mean_ns": 1},
            ]},
        )  # fmt: skip
        found["unavailable"], found["left"] = {"Ash with Claude": "no"}, ["cove: 1 process"]
        text = "\n".join(figures.text(found))
        for expected in ("its first message", "it broke", "no", "cove: 1 process", "0.020", "220"):
            self.assertIn(expected, text)
        self.assertTrue(met(found, "pool: count", "50 ns"))
        self.assertTrue(figures.failed(found))
        self.assertNotIn("times_us", json.dumps(figures.without_samples(found)))

    def test_every_case_has_a_title_and_can_be_run(self):
        names = {case.name for case in sessions.CASES}
        self.assertEqual(names, set(figures.TITLES))
        self.assertEqual(names, set(sessions.RUNS))
        rivals = {rival for case in sessions.CASES for rival in case.rivals}
        self.assertEqual(rivals, set(sessions.MAKERS))


if __name__ == "__main__":
    unittest.main()
