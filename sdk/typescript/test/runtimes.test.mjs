// The same package in Deno, Bun and Chromium.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { test } from "node:test";
import * as esbuild from "esbuild";
import { chromium } from "playwright-core";
import * as sdk from "@cove/sdk";
import WebSocket from "ws";
import { EXPECTED, scenario } from "./scenario.mjs";
import { TOKEN, address } from "./support.mjs";

const here = new URL(".", import.meta.url).pathname;
const PROGRAM = `
import * as sdk from "@cove/sdk";
import { scenario } from "./scenario.mjs";
const { COVE_URL: url, COVE_TOKEN: token } = globalThis.Deno?.env.toObject() ?? process.env;
console.log(JSON.stringify(await scenario(sdk, { url, token })));
`;

function program(...places) {
  const found = places.map((place) => `${here}node_modules/${place}`).find(existsSync);
  assert.ok(found, `npm has no program for this machine: ${places}`);
  return found;
}

function check(binary, parameters) {
  writeFileSync(`${here}runtime.mjs`, PROGRAM);
  const env = { ...process.env, COVE_URL: address(), DENO_NO_UPDATE_CHECK: "1" };
  const ended = spawnSync(binary, [...parameters, "runtime.mjs"], { cwd: here, env });
  assert.equal(ended.status, 0, `${ended.stdout}${ended.stderr}`);
  assert.deepEqual(JSON.parse(ended.stdout), EXPECTED);
}

test("in Node.js", async () => {
  const seen = await scenario(sdk, { url: address(), token: TOKEN, WebSocket });
  assert.deepEqual(seen, EXPECTED);
});

test("in Deno", () => {
  const deno = program("@deno/linux-x64-glibc/deno", "@deno/linux-arm64-glibc/deno");
  check(deno, ["run", "--allow-net", "--allow-env", "--allow-read", "--no-lock"]);
});

test("in Deno without the right to read variables", () => {
  const deno = program("@deno/linux-x64-glibc/deno", "@deno/linux-arm64-glibc/deno");
  const text = 'import { Cove } from "@cove/sdk"; console.log(new Cove().url);';
  writeFileSync(`${here}runtime.mjs`, text);
  const parameters = ["run", "--no-prompt", "--allow-read", "--no-lock", "runtime.mjs"];
  const ended = spawnSync(deno, parameters, { cwd: here, env: process.env });
  assert.equal(String(ended.stdout), "http://127.0.0.1:4100\n", String(ended.stderr));
});

test("in Bun", () => {
  check(program("@oven/bun-linux-x64/bin/bun", "@oven/bun-linux-aarch64/bin/bun"), ["run"]);
});

test("in Chromium, as a bundle on a page of the server's origin", async () => {
  const { outputFiles } = await esbuild.build({
    stdin: {
      contents: 'export * as sdk from "@cove/sdk"; export { scenario } from "./scenario.mjs";',
      resolveDir: here,
    },
    bundle: true, minify: true, format: "iife", globalName: "page", write: false, target: "es2022",
  });
  const browser = await chromium.launch({
    executablePath: "/usr/bin/chromium", args: ["--no-sandbox"],
  });
  try {
    // A page of the server, so that the origin is one; its policy is for its own scripts.
    const page = await browser.newPage({ bypassCSP: true });
    const said = [];
    page.on("console", (message) => said.push(message.text()));
    await page.goto(`${address()}/docs`);
    await page.addScriptTag({ content: outputFiles[0].text });
    const seen = await page.evaluate(
      ({ url, token }) => globalThis.page.scenario(globalThis.page.sdk, { url, token }),
      { url: address(), token: TOKEN }).catch((error) => `${error}\n${said.join("\n")}`);
    assert.deepEqual(seen, EXPECTED);
  } finally {
    await browser.close();
  }
});

test("the package is small, has no dependencies and one entry", async () => {
  const require = createRequire(import.meta.url);
  const manifest = require("@cove/sdk/package.json");
  assert.equal(manifest.dependencies, undefined);
  assert.equal(manifest.sideEffects, false);
  const unused = await esbuild.build({
    stdin: { contents: 'import "@cove/sdk";', resolveDir: here },
    bundle: true, minify: true, format: "esm", write: false, logLevel: "silent",
  });
  assert.equal(unused.outputFiles[0].contents.length, 0);
});
