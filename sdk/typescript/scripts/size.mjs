// Prints how large the client is in a page: minified, and with gzip.

import { gzipSync } from "node:zlib";
import { build } from "esbuild";

for (const [what, contents] of [
  ["everything", 'export * from "./dist/index.js"'],
  ["new Cove()", 'import { Cove } from "./dist/index.js"; globalThis.cove = new Cove()'],
]) {
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: "." }, bundle: true, minify: true, format: "esm", write: false,
    target: "es2022",
  });
  const [{ contents: bytes }] = outputFiles;
  console.log(`${what}: ${bytes.length} bytes, ${gzipSync(bytes, { level: 9 }).length} with gzip`);
}
