// Runs every test beside this file, or those that are named, against the server of `COVE_URL` with
// `COVE_TOKEN`.
//
// `COVE_PAGES` is the root of the checkout, for the pages whose examples are run. What the parent
// has to do is said on standard output (`server: kill`, `server: restart`), and it answers with a
// line on standard input.

import { readFileSync, writeFileSync } from "node:fs";
import { after } from "node:test";
import { transform } from "esbuild";
import { hangUp } from "./support.mjs";

after(hangUp);

const named = process.argv.slice(2);
const names = named.length > 0 ? named : ["client", "sessions", "pages", "faults", "runtimes"];
for (const name of names) {
  // Node.js 20 has no `await using` yet.
  const source = readFileSync(new URL(`${name}.test.mjs`, import.meta.url), "utf8");
  const { code } = await transform(source, { target: "node20", sourcemap: "inline" });
  writeFileSync(new URL(`${name}.built.mjs`, import.meta.url), code);
  await import(`./${name}.built.mjs`);
}
