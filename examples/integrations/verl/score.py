r"""Scores two answers of a model with verl's own reward function; Cove runs them.

    python3 -m venv venv
    venv/bin/pip install requests
    venv/bin/pip install --no-deps verl==0.9.1
    SANDBOX_FUSION_URL="http://cove:$(cove token)@127.0.0.1:4100/compat/sandbox-fusion/run_code" \
        venv/bin/python score.py
"""

import os
import sys
import threading
import types

# Importing verl loads torch and ray, and its reward functions need neither. Without these lines the
# same is done where verl is installed with all that it needs.
PACKAGE = next(path for path in sys.path if os.path.isdir(os.path.join(path, "verl")))
for name in ["verl", "verl.utils"]:
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [os.path.join(PACKAGE, *name.split("."))]

from verl.utils.reward_score import default_compute_score  # noqa: E402

TESTS = {"inputs": ["1 2\n", "3 4\n"], "outputs": ["3", "7"]}
ANSWERS = {
    "right": "Reads two numbers.\n```python\na, b = map(int, input().split())\nprint(a + b)\n```",
    "half right": "It is always three.\n```python\nprint(3)\n```",
    "endless": "```python\nwhile True:\n    pass\n```",
}

# The trainer's `reward.sandbox_fusion.max_concurrent`.
at_once = threading.Semaphore(64)
for name, answer in ANSWERS.items():
    score = default_compute_score(
        "codecontests",
        answer,
        TESTS,
        sandbox_fusion_url=os.environ["SANDBOX_FUSION_URL"],
        concurrent_semaphore=at_once,
        memory_limit_mb=256,
    )
    print(f"{name}: {score}")
