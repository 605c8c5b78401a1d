"""A sandbox agent of OpenAI's Agents SDK, whose sandbox is one of Cove's.

    python3 -m venv venv
    venv/bin/pip install -r requirements.txt
    export E2B_API_URL=http://127.0.0.1:4200 E2B_SANDBOX_URL=http://127.0.0.1:4200
    export E2B_API_KEY=$(cove token --e2b)
    venv/bin/python agent.py task.txt

The model is OpenAI's, by OPENAI_API_KEY, or another one that speaks Responses, by OPENAI_BASE_URL
and MODEL.
"""

import asyncio
import os
import sys
from pathlib import Path

from agents import ItemHelpers, Runner, set_tracing_disabled
from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions
from agents.items import MessageOutputItem, ToolCallItem, ToolCallOutputItem
from agents.run import RunConfig
from agents.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.entries import File

# What happens in a sandbox is nobody else's business: by default the SDK sends traces to OpenAI.
set_tracing_disabled(True)

agent = SandboxAgent(
    name="Accountant",
    model=os.environ.get("MODEL", "gpt-5"),
    instructions="Answer from the files of the workspace.",
    default_manifest=Manifest(entries={"numbers.txt": File(content=b"40\n2\n")}),
)
sandbox = SandboxRunConfig(
    client=E2BSandboxClient(),
    # `e2b_code_interpreter` works as well. What is still there after ten minutes is killed.
    options=E2BSandboxClientOptions(
        sandbox_type="e2b", timeout=600, on_timeout="kill", metadata={"recipe": "openai-agents"}
    ),
)


async def main():
    task = Path(sys.argv[1]).read_text()
    result = await Runner.run(agent, task, max_turns=30, run_config=RunConfig(sandbox=sandbox))
    for item in result.new_items:
        if isinstance(item, ToolCallItem):
            print(f"[{item.raw_item.name}]", end=" ")
        elif isinstance(item, ToolCallOutputItem):
            # Of a command: first what it was and how long it took, then what it printed.
            print(str(item.output).rpartition("Output:\n")[2].strip() or "(nothing yet)")
        elif isinstance(item, MessageOutputItem):
            print(f"[answer] {ItemHelpers.text_message_output(item)}")


asyncio.run(main())
