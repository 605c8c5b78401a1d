// "As command": what is on the page as curl, cove and Python.
import { useState } from 'preact/hooks';
import { type Query, withQuery } from './api';
import { Button, Command } from './basics';
import { apiOrigin } from './base';
import { Dialog, TabPanel, Tabs } from './overlay';

/** A request, and the command line that does the same. */
export interface ShownCommand {
  /** What it does, when there are several. */
  title?: string;
  method?: string;
  path: string;
  query?: Query;
  json?: unknown;
  /** The `cove` command; left out where there is none. */
  cove?: string;
  /** A Python program, where it is more than the request. */
  python?: string;
}

/** Returns a word as a shell takes it. */
export function shellWord(text: string): string {
  return /^[A-Za-z0-9_./:=@%+,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

function curl({ method, path, query, json }: ShownCommand): string {
  const verb = method ?? (json === undefined ? 'GET' : 'POST');
  const lines = [`curl -s ${verb === 'GET' ? '' : `-X ${verb} `}${shellWord(apiOrigin + withQuery(path, query))}`];
  lines.push('-H "authorization: Bearer $(cove token)"');
  if (json !== undefined) {
    lines.push("-H 'content-type: application/json'", `-d ${shellWord(JSON.stringify(json))}`);
  }
  return lines.join(' \\\n  ');
}

function python({ method, path, query, json, python: given }: ShownCommand): string {
  if (given !== undefined) return given;
  const verb = method ?? (json === undefined ? 'GET' : 'POST');
  const body = json === undefined ? '' : `\n    json=${toPython(json, 1)},`;
  return `import os, requests  # pip install requests

answer = requests.request(
    "${verb}", ${JSON.stringify(apiOrigin + withQuery(path, query))},
    headers={"authorization": f"Bearer {os.environ['COVE_TOKEN']}"},${body}
)
answer.raise_for_status()
print(answer.text)`;
}

/** A JSON value as Python writes it. */
function toPython(value: unknown, depth: number): string {
  if (value === null || value === undefined) return 'None';
  if (value === true) return 'True';
  if (value === false) return 'False';
  const pad = '    '.repeat(depth + 1);
  const end = '    '.repeat(depth);
  if (Array.isArray(value)) {
    if (value.length === 0) return '[]';
    return `[\n${value.map((it) => `${pad}${toPython(it, depth + 1)},\n`).join('')}${end}]`;
  }
  if (typeof value === 'object') {
    const items = Object.entries(value).filter(([, it]) => it !== undefined);
    if (items.length === 0) return '{}';
    return `{\n${items.map(([name, it]) => `${pad}${JSON.stringify(name)}: ${toPython(it, depth + 1)},\n`).join('')}${end}}`;
  }
  return JSON.stringify(value);
}

/** A button that shows what is on the page as commands; they are made when it is opened. */
export function AsCommand({ commands, label = 'As command' }: { commands: () => ShownCommand[]; label?: string }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <Button kind="quiet" icon="terminal" onClick={() => setOpen(true)}>{label}</Button>
      {isOpen && <CommandDialog commands={commands()} onClose={() => setOpen(false)} />}
    </>
  );
}

const TOOL_KEY = 'cove.tool';

export function CommandDialog({ commands, onClose }: { commands: ShownCommand[]; onClose: () => void }) {
  const [tool, setTool] = useState(() => localStorage.getItem(TOOL_KEY) ?? 'curl');
  const choose = (next: string) => {
    localStorage.setItem(TOOL_KEY, next);
    setTool(next);
  };
  const text = (one: ShownCommand) => (tool === 'curl' ? curl(one) : tool === 'python' ? python(one) : one.cove);
  return (
    <Dialog title="As command" kind="wide" onClose={onClose}>
      <Tabs label="Tool" value={tool} onValue={choose}
        tabs={[{ id: 'curl', label: 'curl' }, { id: 'cove', label: 'cove' }, { id: 'python', label: 'Python' }]} />
      <TabPanel id={tool}>
        {commands.map((one, at) => (
          <div key={at} class="stack">
            {one.title && <h3>{one.title}</h3>}
            {text(one) === undefined
              ? <p class="muted">The command line has nothing of the kind; use curl or Python.</p>
              : <Command text={text(one)!} />}
          </div>
        ))}
        <p class="muted">
          {tool === 'python' ? 'It reads the token from the variable ' : 'On another machine, put a token where '}
          {tool === 'python' ? <><code>COVE_TOKEN</code>: <code>export COVE_TOKEN=$(cove token)</code></>
            : tool === 'curl' ? <><code>$(cove token)</code> stands</> : <><code>COVE_TOKEN</code> and the address where <code>COVE_URL</code> is read</>}.
        </p>
      </TabPanel>
    </Dialog>
  );
}
