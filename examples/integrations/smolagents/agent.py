"""A code agent of smolagents, whose code runs in a sandbox of Cove.

    python3 -m venv venv
    venv/bin/pip install -r requirements.txt
    export E2B_API_URL=http://127.0.0.1:4200 E2B_SANDBOX_URL=http://127.0.0.1:4200
    export E2B_API_KEY=$(cove token --e2b)
    venv/bin/python agent.py task.txt

The model is OpenAI's, by OPENAI_API_KEY, or another one that speaks Chat Completions, by
OPENAI_BASE_URL and MODEL.
"""

import os
import sys
from pathlib import Path

from smolagents import CodeAgent, LogLevel, OpenAIModel, tool


@tool
def word_count(text: str) -> int:
    """Counts words. Runs in the sandbox, as all that the code calls does.

    Args:
        text: What to count in.
    """
    return len(text.split())


def summary(step):
    """What a step printed; of an error its kind and what it says, without the traceback."""
    if step["error"]:
        return ": ".join(step["error"]["message"].strip().splitlines()[1:3])
    return step["observations"].removeprefix("Execution logs:").partition("Last output")[0].strip()


task = Path(sys.argv[1]).read_text()
model = OpenAIModel(os.environ.get("MODEL", "gpt-5"))
# For the sandbox: killed at the end, or by Cove ten minutes after it was made.
options = {"timeout": 600, "metadata": {"recipe": "smolagents"}}
with CodeAgent(
    tools=[word_count],
    model=model,
    executor_type="e2b",
    executor_kwargs=options,
    verbosity_level=LogLevel.OFF,
) as agent:
    answer = agent.run(task)
    for number, step in enumerate(agent.memory.get_full_steps()[1:], 1):
        print(f"[step {number}] {summary(step)}".rstrip())
    print(f"[answer] {answer}")
