"""An evaluation whose model works in sandboxes of Cove, and whose scorer looks into them.

inspect eval primes.py --model openai/gpt-5
"""

import os

from inspect_ai import Task, task
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.scorer import Score, Target, accuracy, scorer
from inspect_ai.solver import TaskState
from inspect_ai.tool import bash, python
from inspect_ai.util import SandboxEnvironmentSpec, sandbox
from inspect_cove import CoveConfig

# Of a tool, in seconds.
TOOL_TIMEOUT = int(os.environ.get("TOOL_SECONDS", "30"))
QUESTION = "Write primes.py, which prints the primes below its argument, one on a line. Run it."
TESTS = {"10": "2\n3\n5\n7\n", "3": "2\n"}


@scorer(metrics=[accuracy()])
def runs_right():
    async def score(state: TaskState, target: Target) -> Score:
        for argument, expected in TESTS.items():
            ran = await sandbox().exec(["python3", "primes.py", argument], timeout=TOOL_TIMEOUT)
            if ran.stdout != expected:
                return Score(value=0, explanation=f"primes.py {argument}: {ran.stdout}{ran.stderr}")
        return Score(value=1, explanation="primes.py is right")

    return score


@task
def primes(question: str = QUESTION) -> Task:
    return Task(
        dataset=[Sample(input=question, files={"notes.txt": "from the dataset\n"})],
        solver=react(tools=[bash(timeout=TOOL_TIMEOUT), python(timeout=TOOL_TIMEOUT)]),
        scorer=runs_right(),
        sandbox=SandboxEnvironmentSpec("cove", CoveConfig(limits={"processes": 64})),
        message_limit=20,
    )
