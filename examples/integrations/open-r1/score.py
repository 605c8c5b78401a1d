"""Scores answers of a model with open-r1's own reward functions; Cove runs them.

open-r1 is in no package index: OPEN_R1 is a checkout of its repository.

    python3 -m venv venv
    venv/bin/pip install -r requirements.txt
    git clone https://github.com/huggingface/open-r1
    export OPEN_R1=open-r1 PISTON_ENDPOINTS=http://127.0.0.1:2000/api/v2
    export E2B_API_URL=http://127.0.0.1:4200 E2B_SANDBOX_URL=http://127.0.0.1:4200
    export E2B_API_KEY=$(cove token --e2b)
    export E2B_ROUTER=127.0.0.1:8000
    venv/bin/python open-r1/scripts/e2b_router.py --port 8000 &
    venv/bin/python score.py
"""

import os
import sys
import tempfile
import types

# Importing open_r1.utils loads torch, and its reward functions do not need it. Without these lines
# the same is done where open-r1 is installed with all that it needs.
SOURCE = os.path.join(os.environ["OPEN_R1"], "src")
sys.path.insert(0, SOURCE)
sys.modules["open_r1.utils"] = utils = types.ModuleType("open_r1.utils")
utils.__path__ = [os.path.join(SOURCE, "open_r1", "utils")]
from open_r1.utils import import_utils  # noqa: E402

utils.is_e2b_available = import_utils.is_e2b_available
utils.is_morph_available = import_utils.is_morph_available

from open_r1.rewards import cf_code_reward, code_reward  # noqa: E402

TESTS = [{"input": "1 2\n", "output": "3\n"}, {"input": "3 4\n", "output": "7\n"}]
PROBLEM = {
    "id": "1/A",
    "official_tests": TESTS,
    "generated_checker": None,
    "time_limit": 2.0,
    "memory_limit": 256.0,
    "input_mode": "stdio",
}
PYTHON = {
    "right": "a, b = map(int, input().split())\nprint(a + b)",
    "half right": "print(3)",
    "no program": "print(",
    "endless": "while True: pass",
    "cheating": "print(open('correct_output.txt').read())",
}
CPP = {
    "right": "#include <iostream>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b; }",
    "no program": "int main() { return x; }",
}
# What is 0 or 1 for each test: whether two numbers are as far apart as they should be.
CHECKER = "import sys\ngiven, right, said = (open(name).read() for name in sys.argv[1:])\n"
CHECKER += "print(int(abs(int(said) - int(right)) <= 1))"


def answers(programs, language):
    return [[{"content": f"```{language}\n{code}\n```"}] for code in programs.values()]


def report(name, programs, scores):
    for program, score in zip(programs, scores):
        print(f"{name}: {program}: {score}")


# No generated tests beside the official ones.
os.environ["CF_TESTS_FOLDER"] = tempfile.mkdtemp()
for language, programs in {"python": PYTHON, "cpp": CPP}.items():
    columns = {name: [value] * len(programs) for name, value in PROBLEM.items()}
    columns["language"] = [language] * len(programs)
    scores = cf_code_reward(answers(programs, language), scoring_mode="partial", **columns)
    report(f"cf_code {language}", programs, scores)
close = {"close": "print(sum(map(int, input().split())) + 1)"}
columns = {name: [value] for name, value in PROBLEM.items()} | {"language": ["python"]}
columns["generated_checker"] = [CHECKER]
report("cf_code checker", close, cf_code_reward(answers(close, "python"), scoring_mode="partial", **columns))

info = [{"language": "python", "test_cases": TESTS}] * len(PYTHON)
scores = code_reward(answers(PYTHON, "python"), verification_info=info, e2b_router_url=os.environ["E2B_ROUTER"])
report("code e2b", PYTHON, scores)
