// Start hook of the warm Node.js: waits, and lets the interpreter go on with its program.
//
// Loaded by `--require`, as the last thing before Node.js opens the program, in a process that was
// started with exactly the arguments of that program. So nothing of this file is above the program
// on the stack. Descriptor 3 brings what the program is given: its length, then the bytes that
// `Release::encode` makes.
'use strict';

(() => {
  const hook = __filename;
  const { Module } = module.constructor;

  // As if this file had not been loaded, here and in threads, which load it again.
  const forget = () => {
    delete require.cache[hook];
    for (const key of Object.keys(Module._pathCache)) {
      if (Module._pathCache[key] === hook) delete Module._pathCache[key];
    }
    const at = process.execArgv.indexOf(hook);
    if (at > 0) process.execArgv.splice(at - 1, 2);
    if (process._preload_modules) process._preload_modules.length = 0;
  };
  if (!require('worker_threads').isMainThread) return forget();

  const fs = require('fs');
  const chunk = Buffer.allocUnsafeSlow(8192);
  const receive = () => {
    const n = fs.readSync(3, chunk, 0, chunk.length, null);
    // Nobody is left who could send a command.
    if (n === 0) process.reallyExit(125);
    return n;
  };
  // What a program's first line of output loads and compiles, while nobody waits. The streams
  // themselves are made by the program that uses them: making one changes its descriptor.
  require('net');
  require('tty');
  const { Console } = require('console');
  const { Writable } = require('stream');
  const sink = new Writable({ write: (_chunk, _encoding, written) => written() });
  new Console(sink).log('%s', '', { a: [1] });
  fs.writeSync(3, Buffer.from([0]));
  receive();
  const message = Buffer.allocUnsafeSlow(chunk.readUInt32LE(0));
  for (let had = 0; had < message.length; ) {
    const n = receive();
    chunk.copy(message, had, 0, n);
    had += n;
  }
  fs.closeSync(3);

  // Kind, flags and the size of the stack come first, then limits, which are set already.
  let at = 10;
  const word = () => message.readUInt32LE((at += 4) - 4);
  const limits = word();
  at += limits * 12;
  const strings = () => {
    const found = [];
    for (let count = word(); count > 0; count -= 1) {
      const size = word();
      found.push(message.toString('utf8', at, at + size));
      at += size;
    }
    return found;
  };
  process.argv.push(...strings());
  const variables = strings();
  for (const name of Object.keys(process.env)) delete process.env[name];
  for (const variable of variables) {
    const equals = variable.indexOf('=');
    if (equals > 0) process.env[variable.slice(0, equals)] = variable.slice(equals + 1);
  }
  forget();
})();
