"""An agent of LlamaIndex whose programs run in a sandbox of Cove.

python agent.py 'Which day of the week was 1 January 2000? Compute it.'
"""

import asyncio
import os
import sys

from e2b_code_interpreter import AsyncSandbox
from llama_index.core.agent.workflow import (
    AgentStream,
    FunctionAgent,
    ToolCall,
    ToolCallResult,
)
from llama_index.core.tools.tool_spec.base import BaseToolSpec
from llama_index.llms.openai import OpenAI

# Seconds.
SANDBOX_TIMEOUT = 600
TOOL_TIMEOUT = float(os.environ.get("TOOL_SECONDS", "30"))


class CoveToolSpec(BaseToolSpec):
    """Takes the place of `CodeInterpreterToolSpec`, which runs programs on this machine."""

    spec_functions = ["run_python", "run_command"]

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self.sandbox = sandbox

    async def run_python(self, code: str) -> str:
        """Runs a cell of Python. Variables are kept for the next one."""
        run = await self.sandbox.run_code(code, timeout=TOOL_TIMEOUT)
        if run.error:
            raise RuntimeError(f"{run.error.name}: {run.error.value}")
        return "".join([*run.logs.stdout, *run.logs.stderr, run.text or ""]).rstrip()

    async def run_command(self, command: str) -> str:
        """Runs a line of shell in /home/user."""
        run = await self.sandbox.commands.run(command, timeout=TOOL_TIMEOUT)
        return (run.stdout + run.stderr).rstrip()


async def answer(question: str) -> None:
    async with await AsyncSandbox.create(timeout=SANDBOX_TIMEOUT) as sandbox:
        agent = FunctionAgent(
            tools=CoveToolSpec(sandbox).to_tool_list(),
            llm=OpenAI(
                model=os.environ.get("MODEL", "gpt-4.1"),
                api_base=os.environ.get("OPENAI_BASE_URL"),
            ),
            system_prompt="You answer by programs that you run with your tools.",
        )
        run = agent.run(user_msg=question)
        async for event in run.stream_events():
            if isinstance(event, ToolCallResult):
                print("!" if event.tool_output.is_error else "<", event.tool_output.content)
            elif isinstance(event, ToolCall):
                print(">", event.tool_name, event.tool_kwargs)
            elif isinstance(event, AgentStream):
                print(event.delta, end="")
        await run
        print()


asyncio.run(answer(sys.argv[1]))
