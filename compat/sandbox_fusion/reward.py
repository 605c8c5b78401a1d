"""verl's reward function, unmodified, against Cove.

Needs BASE (http://host:port/compat/sandbox-fusion) and TOKEN in the environment, and in VERL the
directory with verl's package. Ends with 0 and "ok" when everything was as it should be.
"""

import json
import logging
import os
import socket
import sys
import threading
import types
import urllib.parse

VERL = os.environ["VERL"]
sys.path.insert(0, VERL)
# What these two packages load when they are imported needs torch and ray, and nothing of it is needed
# by the function. Their modules are loaded as they are.
for name in ["verl", "verl.utils"]:
    package = types.ModuleType(name)
    package.__path__ = [os.path.join(VERL, *name.split("."))]
    sys.modules[name] = package

from verl.utils.reward_score import default_compute_score  # noqa: E402
from verl.utils.reward_score.sandbox_fusion import compute_score  # noqa: E402
from verl.utils.reward_score.sandbox_fusion.utils import call_sandbox_api, check_correctness  # noqa: E402

BASE, TOKEN = os.environ["BASE"], os.environ["TOKEN"]
URL = BASE.replace("://", f"://cove:{TOKEN}@", 1) + "/run_code"
CASES = {"inputs": ["1 2\n", "3 4\n", "-5 5\n"], "outputs": ["3", "7", "0"]}
RIGHT = "a, b = map(int, input().split())\nprint(a + b)"
WRONG = "print(7)"


def equal(seen, expected, what=""):
    assert seen == expected, f"{what}: {seen!r} is not {expected!r}"


def fenced(source):
    return f"Here it is.\n```python\n{source}\n```\n"


def scores_follow_the_solution():
    for source, expected in [(RIGHT, 1.0), (WRONG, 1 / 3), ("print(", 0.0)]:
        score, metadata = compute_score(URL, threading.Semaphore(8), 1024, fenced(source), CASES, timeout=30)
        equal(score, expected, metadata)
    # As the trainer calls it: without a limit on memory, null is sent.
    score = default_compute_score(
        "codecontests", fenced(RIGHT), json.dumps(CASES), sandbox_fusion_url=URL, concurrent_semaphore=None
    )
    equal(score, 1.0)
    asserts = {"assert_case": ["assert add(1, 2) == 3", "assert add(1, 2) == 4"]}
    score, metadata = compute_score(URL, None, 512, fenced("def add(a, b):\n    return a + b"), asserts, timeout=30)
    equal(score, 0.5, metadata)
    named = {"fn_name": "add", "inputs": ["1\n2", "2\n2"], "outputs": ["3", "5"]}
    results, metadata = check_correctness(URL, named, "def add(a, b):\n    return a + b", timeout=30)
    equal(results, [True, False], metadata)


def every_kind_of_failure_has_its_number():
    one = {"inputs": [""], "outputs": ["x"]}
    for source, language, timeout, expected, status in [
        ("print('x')", "python", 30, True, "success"),
        ("print('y')", "python", 30, False, "wrong_answer"),
        ("raise SystemExit(3)", "python", 30, -2, "runtime_error"),
        ("import os, signal; os.kill(os.getpid(), 11)", "python", 30, -2, "runtime_error"),
        ("x = bytearray(3 << 30)", "python", 30, -2, "runtime_error"),
        ("while True: print('x' * 1000)", "python", 30, -2, "runtime_error"),
        ("while True: pass", "python", 1, -3, "timeout"),
        ("while True:\n  try:\n    while True: pass\n  except BaseException: pass", "python", 1, -3, "timeout"),
        ("nonsense", "cpp", 30, -4, "compile_error"),
        ("", "cuda", 30, -1, "sandbox_error"),
    ]:
        results, metadata = check_correctness(URL, one, source, timeout=timeout, language=language)
        equal((results, metadata[0]["status"]), ([expected], status), metadata)
    assert "needs a GPU" in metadata[0]["api_response"]["message"], metadata


def a_batch_is_scored_without_an_error():
    """64 samples at once, each with its cases; every other one is wrong."""
    scores = [None] * 64
    bound = threading.Semaphore(64)

    def score(number):
        source = RIGHT if number % 2 == 0 else WRONG
        scores[number] = compute_score(URL, bound, 64, fenced(source), CASES, timeout=60)

    threads = [threading.Thread(target=score, args=[number]) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, (score, metadata) in enumerate(scores):
        equal(score, 1.0 if number % 2 == 0 else 1 / 3, metadata)
        assert all(case["status"] in ("success", "wrong_answer") for case in metadata), metadata


class Place:
    """Every place of the server, held by programs that only sleep until they are let go."""

    def __init__(self, count):
        address = urllib.parse.urlsplit(BASE)
        body = json.dumps({"language": "bash", "code": "echo up >&2; sleep 3600", "run_timeout": 300}).encode()
        head = (
            f"POST {address.path}/run_code HTTP/1.1\r\nhost: {address.netloc}\r\nauthorization: Bearer {TOKEN}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        ).encode()
        self.sockets = []
        for _ in range(count):
            held = socket.create_connection((address.hostname, address.port))
            held.sendall(head + body)
            self.sockets.append(held)

    def let_go(self):
        for held in self.sockets:
            held.close()
        self.sockets = []


class On504(logging.Handler):
    """Does something at the first 504 that verl's function tells of."""

    def __init__(self, act):
        super().__init__(logging.WARNING)
        self.act, self.seen = act, 0

    def emit(self, record):
        if "Gateway Timeout (504)" in record.getMessage():
            self.seen += 1
            self.act()


def a_server_at_capacity_is_tried_again():
    logger = logging.getLogger("verl.utils.reward_score.sandbox_fusion.utils")
    place = Place(int(os.environ["PLACES"]))
    handler = On504(place.let_go)
    logger.addHandler(handler)
    try:
        # The server has so little patience here that it says 504 when the places are held.
        while handler.seen == 0:
            answer, error = call_sandbox_api(URL, "print(1)", "", 0, 30, 64)
            equal((error, answer and answer["run_result"]["stdout"]), (None, "1\n"))
    finally:
        logger.removeHandler(handler)
        place.let_go()


def main():
    tests = [scores_follow_the_solution, every_kind_of_failure_has_its_number, a_batch_is_scored_without_an_error]
    if "PLACES" in os.environ:
        tests = [a_server_at_capacity_is_tried_again]
    for test in tests:
        print(test.__name__, flush=True)
        test()
    print("ok")


if __name__ == "__main__":
    main()
