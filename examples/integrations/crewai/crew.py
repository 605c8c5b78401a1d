"""A crew of CrewAI whose programs run in a sandbox of Cove.

python crew.py 'Which day of the week was 1 January 2000? Compute it.'
"""

import os
import sys

from crewai import LLM, Agent, Crew, Task
from crewai.events import (
    ToolUsageErrorEvent,
    ToolUsageFinishedEvent,
    ToolUsageStartedEvent,
    crewai_event_bus,
)
from crewai_tools import E2BExecTool, E2BFileTool, E2BPythonTool
from e2b_code_interpreter import Sandbox

# Seconds. The sandbox is gone then, whatever the crew does.
SANDBOX_TIMEOUT = 600


@crewai_event_bus.on(ToolUsageStartedEvent)
def started(source, event):
    print(">", event.tool_name, event.tool_args, flush=True)


@crewai_event_bus.on(ToolUsageFinishedEvent)
def finished(source, event):
    print("<", event.output, flush=True)


@crewai_event_bus.on(ToolUsageErrorEvent)
def failed(source, event):
    print("!", event.error, flush=True)


# One sandbox for all tools: each would make its own otherwise, or one for every call.
with Sandbox.create(timeout=SANDBOX_TIMEOUT) as sandbox:
    kinds = [E2BPythonTool, E2BExecTool, E2BFileTool]
    tools = [kind(sandbox_id=sandbox.sandbox_id) for kind in kinds]
    analyst = Agent(
        role="Analyst",
        goal="Answer by programs that you run with your tools",
        backstory="You trust nothing that you have not computed.",
        tools=tools,
        llm=LLM(
            model=os.environ.get("MODEL", "openai/gpt-4.1"),
            base_url=os.environ.get("OPENAI_BASE_URL"),
        ),
    )
    task = Task(description=sys.argv[1], expected_output="One sentence", agent=analyst)
    print(Crew(agents=[analyst], tasks=[task]).kickoff())
