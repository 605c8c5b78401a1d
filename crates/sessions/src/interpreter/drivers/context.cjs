// Context of a code interpreter: runs cells of JavaScript or TypeScript sequentially.
//
// The server and the context exchange lines of JSON on descriptor 3. Cells are evaluated in the
// REPL mode of the inspector: a `let` or `const` may be declared again, and `await` may stand at
// the top level. The arguments are `require` and `load`, an `import()` that resolves from the
// working directory.
'use strict';

const net = require('net');
const fs = require('fs');
const vm = require('vm');
const util = require('util');
const path = require('path');
const inspector = require('inspector');
const { Module, createRequire, stripTypeScriptTypes } = require('module');
const { spawnSync } = require('child_process');

// Longest representations. Longer plain text is cut; other longer representations are left out.
const TEXT_MAX = 2 << 20;
const JSON_MAX = 1 << 20;
const RESULT_MAX = 4 << 20;
// Longest message, with its JSON escapes, and longest text of an error.
const MESSAGE_MAX = 11 << 20;
const ERROR_MAX = 256 << 10;

const control = new net.Socket({ fd: 3, readable: true, writable: true });
const session = new inspector.Session();
session.connect();
const post = (method, parameters) => new Promise((resolve, reject) => {
  session.post(method, parameters, (error, answer) => (error ? reject(error) : resolve(answer)));
});

const send = (message) => {
  const line = Buffer.from(`${JSON.stringify(message)}\n`);
  if (line.length > MESSAGE_MAX) return false;
  control.write(line);
  return true;
};

// ---- source text ---------------------------------------------------------------------------------

/** Positions of strings, comments, templates and regular expressions, as [start, end) pairs. */
function literals(code) {
  const spans = [];
  const depth = [];
  let at = 0;
  let last = '';
  const skip = (end) => { spans.push([at, end]); at = end; };
  const quoted = (quote, from) => {
    let end = from;
    while (end < code.length && code[end] !== quote) {
      if (code[end] === '\\') end += 1;
      else if (quote === '`' && code[end] === '$' && code[end + 1] === '{') return end + 2;
      else if (quote !== '`' && code[end] === '\n') break;
      end += 1;
    }
    return Math.min(end + 1, code.length);
  };
  const template = (from) => {
    const end = quoted('`', from);
    if (code[end - 1] === '{') depth.push(0);
    skip(end);
  };
  while (at < code.length) {
    const char = code[at];
    const next = code[at + 1];
    if (char === '/' && next === '/') {
      const end = code.indexOf('\n', at);
      skip(end < 0 ? code.length : end);
    } else if (char === '/' && next === '*') {
      const end = code.indexOf('*/', at + 2);
      skip(end < 0 ? code.length : end + 2);
    } else if (char === '"' || char === "'") {
      skip(quoted(char, at + 1));
      last = char;
    } else if (char === '`') {
      template(at + 1);
      last = char;
    } else if (char === '/' && !/[\w$)\]}'"`]/.test(last)) {
      let end = at + 1;
      let inClass = false;
      while (end < code.length && code[end] !== '\n' && (inClass || code[end] !== '/')) {
        if (code[end] === '\\') end += 1;
        else if (code[end] === '[') inClass = true;
        else if (code[end] === ']') inClass = false;
        end += 1;
      }
      skip(Math.min(end + 1, code.length));
      last = '/';
    } else {
      if (depth.length > 0 && char === '{') depth[depth.length - 1] += 1;
      if (depth.length > 0 && char === '}') {
        if (depth[depth.length - 1] === 0) {
          depth.pop();
          template(at + 1);
          last = '`';
          continue;
        }
        depth[depth.length - 1] -= 1;
      }
      if (!/\s/.test(char)) last = char;
      at += 1;
    }
  }
  return spans;
}

const DECLARATION = new RegExp([
  '\\bimport\\s+(?:type\\s+)?(?:([\\w$]+)\\s*(?:,\\s*)?)?(?:\\{([^}]*)\\}|\\*\\s*as\\s+([\\w$]+))?',
  '\\s*from\\s*(["\'])([^"\'\\n]+)\\4\\s*;?|\\bimport\\s*(["\'])([^"\'\\n]+)\\6\\s*;?',
  '|\\bimport(?=\\s*\\()',
].join(''), 'g');

/** Replaces imports by calls of `__import`: code that the inspector evaluates cannot import. */
function withImports(code) {
  if (!code.includes('import')) return code;
  const spans = literals(code);
  const isLiteral = (at) => spans.some(([start, end]) => at >= start && at < end);
  return code.replace(DECLARATION, (whole, one, some, all, _q, from, _p, only, at) => {
    if (isLiteral(at) || code[at - 1] === '.') return whole;
    if (only !== undefined) return `await __import(${JSON.stringify(only)});`;
    if (from === undefined) return '__import';
    const names = some === undefined ? [] : some.split(',').map((it) => it.trim());
    const parts = names.filter((it) => it && !it.startsWith('type '))
      .map((it) => it.replace(/\s+as\s+/, ': '));
    if (one !== undefined) parts.unshift(`default: ${one}`);
    const target = all === undefined ? `{ ${parts.join(', ')} }` : all;
    const also = all !== undefined && one !== undefined ? `const ${one} = ${all}.default;` : '';
    return `const ${target} = await __import(${JSON.stringify(from)});${also}`;
  });
}

/** Returns TypeScript code without its types. */
function withoutTypes(code) {
  if (stripTypeScriptTypes !== undefined) return stripTypeScriptTypes(code, { mode: 'transform' });
  const options = [
    '--loader=ts', '--log-level=error', '--target=es2022',
    '--tsconfig-raw={"compilerOptions":{"verbatimModuleSyntax":true,"target":"es2022"}}',
  ];
  const made = spawnSync('esbuild', options, { input: code, encoding: 'utf8', maxBuffer: 64 << 20 });
  if (made.error) throw new Error(`TypeScript needs esbuild in the sandbox: ${made.error.message}`);
  if (made.status !== 0) throw new SyntaxError(made.stderr.trim());
  return made.stdout;
}

// ---- results -------------------------------------------------------------------------------------

const METHODS = [
  ['text/html', '_toHtml'], ['image/svg+xml', '_toSvg'], ['image/png', '_toPng'],
  ['image/jpeg', '_toJpeg'], ['text/markdown', '_toMarkdown'], ['text/latex', '_toLatex'],
];

function bundle(value) {
  const data = { 'text/plain': util.inspect(value) };
  if (value === null || typeof value !== 'object') return data;
  for (const [mime, name] of METHODS) {
    if (typeof value[name] === 'function') data[mime] = value[name]();
  }
  const display = value[Symbol.for('Jupyter.display')];
  if (typeof display === 'function') Object.assign(data, display.call(value));
  const prototype = Object.getPrototypeOf(value);
  if (Array.isArray(value) || prototype === Object.prototype || prototype === null) {
    data['application/json'] = value;
  }
  return data;
}

function show(data, isMain) {
  const texts = {};
  const leftOut = [];
  let total = 0;
  for (const [mime, value] of Object.entries(data)) {
    const isJson = mime === 'application/json' || mime.endsWith('+json');
    let text;
    try {
      text = isJson ? JSON.stringify(value) : String(value);
    } catch {
      continue;
    }
    if (text === undefined) continue;
    if (text.length > (isJson ? JSON_MAX : TEXT_MAX)) {
      leftOut.push(mime);
      if (mime !== 'text/plain') continue;
      text = text.slice(0, TEXT_MAX);
    }
    total += text.length;
    if (total > RESULT_MAX || mime.length > 120 || Object.keys(texts).length >= 24) {
      leftOut.push(mime.slice(0, 120));
      continue;
    }
    texts[mime] = text;
  }
  const message = { type: 'result', is_main_result: isMain, data: texts };
  if (leftOut.length > 0) message.truncated = leftOut.slice(0, 24);
  if (!send(message)) {
    message.truncated = Object.keys(texts);
    message.data = { 'text/plain': (texts['text/plain'] ?? '').slice(0, ERROR_MAX) };
    send(message);
  }
}

function fail(error) {
  const isError = util.types.isNativeError(error) || error instanceof Error;
  send({
    type: 'error',
    name: String((isError && error.name) || 'Error').slice(0, 1000),
    value: String(isError ? error.message : util.inspect(error)).slice(0, ERROR_MAX),
    traceback: String(isError ? trace(error) : util.inspect(error)).slice(0, ERROR_MAX),
  });
}

/** Returns the stack of an error without the frames below the cell. */
function trace(error) {
  const lines = String(error.stack || error).split('\n');
  const end = lines.findIndex((line) => /cove-context|node:inspector/.test(line));
  return (end < 0 ? lines : lines.slice(0, end)).join('\n');
}

// ---- cells ---------------------------------------------------------------------------------------

let interrupt = null;
process.on('SIGINT', () => { if (interrupt !== null) interrupt(); });

class Interrupted extends Error {}
Interrupted.prototype.name = 'KeyboardInterrupt';

/** Returns the value to which an inspector's remote object refers. */
async function valueOf(remote) {
  if (remote.objectId === undefined) {
    if (remote.unserializableValue === undefined) return remote.value;
    return vm.runInThisContext(`(${remote.unserializableValue})`);
  }
  let taken;
  const key = `__value${Math.random()}`;
  globalThis[key] = (value) => { taken = value; };
  try {
    await post('Runtime.callFunctionOn', {
      objectId: remote.objectId,
      functionDeclaration: `function (value) { globalThis[${JSON.stringify(key)}](value); }`,
      arguments: [{ objectId: remote.objectId }],
    });
  } finally {
    delete globalThis[key];
  }
  return taken;
}

async function evaluate(code) {
  let wasInterrupted = false;
  const interrupted = new Promise((_, reject) => {
    interrupt = () => {
      wasInterrupted = true;
      reject(new Interrupted('the cell was interrupted'));
    };
  });
  interrupted.catch(() => {});
  let evaluation;
  globalThis.__begin = () => {
    // Sent while interrupts are handled. Synchronous code of the cell could block all further
    // writes to the socket, so the evaluation starts only after this message was written.
    send({ type: 'running' });
    if (control.writableLength > 0) return;
    evaluation = post('Runtime.evaluate', {
      expression: code, replMode: true, awaitPromise: true, objectGroup: 'cell',
    });
    evaluation.catch(() => {});
  };
  try {
    // `breakOnSigint` interrupts synchronous code; the signal's handler interrupts a pending await.
    do {
      await new Promise((written) => { control.write('', written); });
      // An interrupt may arrive while the socket writes the message of the previous round.
      if (wasInterrupted) throw new Interrupted('the cell was interrupted');
      vm.runInThisContext('__begin()', { breakOnSigint: true, filename: 'cove-context' });
    } while (evaluation === undefined);
  } catch (error) {
    if (error.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED') {
      throw new Interrupted('the cell was interrupted');
    }
    throw error;
  } finally {
    delete globalThis.__begin;
  }
  const answer = await Promise.race([evaluation, interrupted]);
  const details = answer.exceptionDetails;
  if (details !== undefined) {
    throw details.exception === undefined
      ? new Error(details.text) : await valueOf(details.exception);
  }
  return valueOf(answer.result);
}

function peakBytes() {
  try {
    const found = /VmHWM:\s*(\d+)/.exec(fs.readFileSync('/proc/self/status', 'utf8'));
    return Number(found[1]) * 1024;
  } catch {
    return process.memoryUsage().rss;
  }
}

async function run(request) {
  const kept = new Map();
  for (const [name, value] of Object.entries(request.env)) {
    kept.set(name, process.env[name]);
    process.env[name] = value;
  }
  try {
    // Resets the peak to the current resident memory (proc_pid_clear_refs(5)).
    fs.writeFileSync('/proc/self/clear_refs', '5');
  } catch {
    // The peak then covers the whole life of the context.
  }
  const began = process.cpuUsage();
  let failed = false;
  try {
    const code = isTypeScript ? withoutTypes(request.code) : request.code;
    const value = await evaluate(withImports(code));
    if (value !== undefined) show(bundle(value), true);
  } catch (error) {
    failed = true;
    fail(error);
  } finally {
    interrupt = null;
    session.post('Runtime.releaseObjectGroup', { objectGroup: 'cell' });
  }
  for (const [name, value] of kept) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }
  const used = process.cpuUsage(began);
  send({
    type: 'done', failed, cpu_us: used.user + used.system, memory_bytes: peakBytes(),
  });
}

let isTypeScript = false;

function begin(start) {
  isTypeScript = start.language === 'typescript';
  try {
    process.chdir(start.cwd);
  } catch (error) {
    send({ type: 'failed', message: `cwd: ${error.code}` });
    control.end(() => process.exit(1));
    return;
  }
  for (const name of Object.keys(process.env)) {
    if (!(name in start.env)) delete process.env[name];
  }
  Object.assign(process.env, start.env);
  const require = createRequire(path.join(process.cwd(), 'cell.js'));
  Object.assign(globalThis, {
    require,
    module: new Module('cell'),
    __dirname: process.cwd(),
    __filename: path.join(process.cwd(), 'cell.js'),
    display: (value) => show(bundle(value), false),
  });
  globalThis.exports = globalThis.module.exports;
  Object.defineProperty(globalThis, '__import', {
    value: (name) => load(/^\.{0,2}\//.test(name) ? path.resolve(name) : name),
  });
  // The REPL of Node.js defines the same globals.
  for (const name of Module.builtinModules) {
    if (name.startsWith('_') || name.includes('/') || name in globalThis) continue;
    Object.defineProperty(globalThis, name, {
      configurable: true,
      get: () => require(name),
      set: (value) => Object.defineProperty(globalThis, name, {
        value, writable: true, configurable: true, enumerable: true,
      }),
    });
  }
  process.on('uncaughtException', (error) => {
    process.stderr.write(`${trace(error)}\n`);
  });
  process.on('unhandledRejection', (error) => {
    process.stderr.write(`${util.inspect(error)}\n`);
  });
  send({ type: 'ready' });
}

let pending = [];
let queue = Promise.resolve();
let hasBegun = false;
control.on('data', (chunk) => {
  let rest = chunk;
  for (;;) {
    const at = rest.indexOf(10);
    if (at < 0) break;
    const line = Buffer.concat([...pending, rest.subarray(0, at)]).toString('utf8');
    pending = [];
    rest = rest.subarray(at + 1);
    const message = JSON.parse(line);
    if (hasBegun) {
      queue = queue.then(() => run(message));
    } else {
      hasBegun = true;
      begin(message);
    }
  }
  if (rest.length > 0) pending.push(rest);
});
control.on('end', () => process.exit(0));
control.on('error', () => process.exit(0));
