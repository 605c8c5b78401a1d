"""An agent of LangChain's DeepAgents, whose shell and files are in a sandbox of Cove.

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

from deepagents import create_deep_agent
from e2b import Sandbox
from langchain_core.messages import AIMessage, ToolMessage
from langchain_e2b import E2BSandbox
from langchain_openai import ChatOpenAI

task = Path(sys.argv[1]).read_text()
model = ChatOpenAI(model=os.environ.get("MODEL", "gpt-5"))
# The sandbox is killed at the end, or by Cove ten minutes after it was made.
with Sandbox.create(timeout=600, metadata={"recipe": "deepagents"}) as sandbox:
    # A command that takes longer than a minute is killed, and the model is told.
    backend = E2BSandbox(sandbox=sandbox, timeout=60)
    agent = create_deep_agent(model=model, backend=backend)
    answer = agent.invoke({"messages": [{"role": "user", "content": task}]})
for message in answer["messages"]:
    if isinstance(message, ToolMessage):
        print(f"[{message.name}] {message.text.strip()}")
    elif isinstance(message, AIMessage) and message.text:
        print(f"[answer] {message.text.strip()}")
