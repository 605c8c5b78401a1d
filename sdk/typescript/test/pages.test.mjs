// The examples of the guide and the README: type-checked as users do, and run.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import ts from "typescript";
import { TOKEN, address, deployEcho } from "./support.mjs";

const here = new URL(".", import.meta.url).pathname;
const PAGES = ["docs/sdk-typescript.md", "sdk/typescript/README.md"];
const STRICT = {
  strict: true, exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true, noEmit: true,
  skipLibCheck: false, target: ts.ScriptTarget.ES2022,
};

/** Examples of the pages, as files of a directory; the names with the place of each. */
function examples(directory) {
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory);
  const found = [];
  for (const page of PAGES) {
    const text = readFileSync(`${process.env.COVE_PAGES}/${page}`, "utf8");
    for (const { 1: code, index } of text.matchAll(/^```ts\n([\s\S]*?)^```/gm)) {
      const line = text.slice(0, index).split("\n").length;
      const file = `${directory}/example${found.length}.ts`;
      writeFileSync(file, code);
      found.push({ file, code, place: `${page}:${line}` });
    }
  }
  return found;
}

const all = examples(`${here}examples`);

// Before the compiler keeps this process from hearing that idle connections were closed.
await deployEcho();

/** `ws` comes without types; a page has those that the client asks for. */
const WS = `declare module "ws" {
  const it: import("@cove/sdk").WebSocketClass;
  export default it;
}`;

function problems(options, files) {
  const program = ts.createProgram(files, { ...STRICT, ...options });
  return ts.getPreEmitDiagnostics(program).map(({ file, start, messageText }) =>
    `${file?.fileName}:${start}: ${ts.flattenDiagnosticMessageText(messageText, "\n")}`);
}

test("the examples and the declarations are right for every way to resolve modules", () => {
  writeFileSync(`${here}examples/ws.d.ts`, WS);
  const files = [...all.map(({ file }) => file), `${here}examples/ws.d.ts`];
  writeFileSync(`${here}examples/package.json`, '{ "type": "module" }');
  const { ModuleKind: module, ModuleResolutionKind: resolution } = ts;
  const node = { module: module.NodeNext, moduleResolution: resolution.NodeNext };
  const bundler = { module: module.ESNext, moduleResolution: resolution.Bundler };
  const withNode = { lib: ["lib.es2022.d.ts"], types: ["node"] };
  const dom = ["lib.es2022.d.ts", "lib.dom.d.ts", "lib.dom.iterable.d.ts"];
  const withDom = { lib: dom, types: ["node"] };
  for (const options of [{ ...node, ...withNode }, { ...bundler, ...withDom }]) {
    assert.deepEqual(problems(options, files), []);
  }
  // What is wrong has to be found.
  const wrong = `${here}examples/wrong.ts`;
  writeFileSync(wrong, 'import { Cove } from "@cove/sdk"; new Cove().run({ sorce: "" });');
  assert.equal(problems({ ...node, ...withNode }, [wrong]).length, 1);
});

test("no public member is `any`, and all of them say what they are", () => {
  const entry = `${here}node_modules/@cove/sdk/dist/index.d.ts`;
  const options = { ...STRICT, module: ts.ModuleKind.NodeNext };
  const program = ts.createProgram([entry], options);
  const checker = program.getTypeChecker();
  const bare = [];
  const look = (name, symbol) => {
    if (symbol.getDocumentationComment(checker).length === 0) bare.push(`${name} has no comment`);
  };
  const own = program.getSourceFiles().filter(({ fileName }) => fileName.includes("/@cove/sdk/"));
  assert.ok(own.length > 10);
  const visit = (node) => {
    if (node.kind === ts.SyntaxKind.AnyKeyword) bare.push(`${node.parent.getText()} has an any`);
    ts.forEachChild(node, visit);
  };
  own.forEach(visit);
  const source = program.getSourceFile(entry);
  for (const exported of checker.getExportsOfModule(checker.getSymbolAtLocation(source))) {
    const isAlias = (exported.flags & ts.SymbolFlags.Alias) !== 0;
    const symbol = isAlias ? checker.getAliasedSymbol(exported) : exported;
    look(exported.name, symbol);
    for (const declaration of symbol.declarations ?? []) {
      if (!ts.isClassDeclaration(declaration) && !ts.isInterfaceDeclaration(declaration)) continue;
      for (const member of declaration.members) {
        if (!member.name || ts.isPrivateIdentifier(member.name)) continue;
        const isPrivate = ts.getCombinedModifierFlags(member) & ts.ModifierFlags.Private;
        const text = member.name.getText();
        if (isPrivate || text.startsWith("[")) continue;
        const found = checker.getSymbolAtLocation(member.name);
        look(`${exported.name}.${text}`, found);
      }
    }
  }
  assert.deepEqual(bare, []);
});

for (const { file, code, place } of all) {
  test(`the example of ${place} runs`, async () => {
    const compilerOptions = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext };
    const { outputText } = ts.transpileModule(code, { compilerOptions });
    const script = file.replace(/ts$/, "mjs");
    writeFileSync(script, outputText);
    const env = { ...process.env, COVE_URL: address(), COVE_TOKEN: TOKEN };
    const child = spawn("node", [script], { cwd: here, env, timeout: 60_000 });
    const told = [];
    child.stdout.on("data", (chunk) => told.push(chunk));
    child.stderr.on("data", (chunk) => told.push(chunk));
    const status = await new Promise((resolve) => { child.on("close", resolve); });
    const output = Buffer.concat(told).toString();
    assert.equal(status, 0, output);
    assert.ok(output.length > 0);
    // What an example says that it prints.
    for (const [, value] of code.matchAll(/console\.log\(.*\); \/\/ ([A-Z\d].*)$/gm)) {
      assert.ok(output.includes(value), `${value}\n${output}`);
    }
  });
}
