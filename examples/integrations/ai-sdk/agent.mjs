// An agent of the AI SDK whose programs run in a sandbox of Cove.
//
//     node agent.mjs 'Which day of the week was 1 January 2000? Compute it.'

import { openai } from '@ai-sdk/openai';
import { Sandbox } from '@e2b/code-interpreter';
import { ToolLoopAgent, isStepCount, tool } from 'ai';
import { z } from 'zod';

const SANDBOX_MS = 10 * 60_000;
const TOOL_MS = Number(process.env.TOOL_SECONDS ?? 30) * 1_000;
const STEPS_MAX = 20;

const sandbox = await Sandbox.create({ timeoutMs: SANDBOX_MS });

// A tool that throws is told to the model as an error, and the agent goes on.
const tools = {
  run_python: tool({
    description: 'Runs a cell of Python. Variables are kept for the next one.',
    inputSchema: z.object({ code: z.string() }),
    execute: async ({ code }) => {
      const run = await sandbox.runCode(code, { timeoutMs: TOOL_MS });
      if (run.error) throw new Error(`${run.error.name}: ${run.error.value}`);
      return [...run.logs.stdout, ...run.logs.stderr, run.text ?? ''].join('').trimEnd();
    },
  }),
  run_command: tool({
    description: 'Runs a line of shell in /home/user.',
    inputSchema: z.object({ command: z.string() }),
    execute: async ({ command }) => {
      const run = await sandbox.commands.run(command, { timeoutMs: TOOL_MS });
      return run.stdout + run.stderr;
    },
  }),
};

const agent = new ToolLoopAgent({
  model: openai(process.env.MODEL ?? 'gpt-5'),
  instructions: 'You answer by programs that you run with your tools.',
  tools,
  stopWhen: isStepCount(STEPS_MAX),
});

try {
  const { fullStream } = await agent.stream({ prompt: process.argv[2] });
  for await (const part of fullStream) {
    const input = JSON.stringify(part.input);
    if (part.type === 'tool-call') console.log(`> ${part.toolName} ${input}`);
    else if (part.type === 'tool-result') console.log(`< ${part.output.trimEnd()}`);
    else if (part.type === 'tool-error') console.log(`! ${part.error.message}`);
    else if (part.type === 'text-delta') process.stdout.write(part.text);
    else if (part.type === 'error') throw part.error;
  }
  console.log();
} finally {
  await sandbox.kill();
}
