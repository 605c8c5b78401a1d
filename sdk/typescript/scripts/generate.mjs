// Writes `src/schema.ts` (types, by openapi-typescript) and `src/contract.ts` (what the client
// needs of the contract when it runs) from the interface's document, which an argument may name.
// `--check` compares them instead.
//
// The Iceberg REST part of the document is left out: PyIceberg, Spark and the like speak it.

import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import openapiTS, { astToString } from "openapi-typescript";

const [named] = process.argv.slice(2).filter((argument) => argument !== "--check");
const DOCUMENT = named ?? new URL("../../../crates/api/openapi.json", import.meta.url);
const LEFT_OUT = ["/catalog/v1/", "/mcp", "/docs", "/metrics", "/openapi.json", "/v1/console/"];
/** Documents that no operation which is kept refers to. */
const ALWAYS = ["LiveServerMessage", "OauthToken"];
const METHODS = ["get", "put", "post", "patch", "delete", "head"];

/** The document with the operations and schemas that the client uses. */
function selected(document) {
  const paths = {};
  const wanted = new Set();
  const want = (value) => {
    if (Array.isArray(value)) return value.forEach(want);
    if (value === null || typeof value !== "object") return;
    if (typeof value.$ref === "string") {
      const name = value.$ref.split("/").at(-1);
      if (value.$ref.startsWith("#/components/responses/")) {
        want(document.components.responses[name]);
      } else if (!wanted.has(name)) {
        wanted.add(name);
        want(document.components.schemas[name]);
      }
    }
    for (const item of Object.values(value)) want(item);
    Object.values(value.discriminator?.mapping ?? {}).forEach(($ref) => want({ $ref }));
  };
  for (const name of ALWAYS) want({ $ref: `#/components/schemas/${name}` });
  for (const [path, operations] of Object.entries(document.paths)) {
    if (LEFT_OUT.some((prefix) => path.startsWith(prefix))) continue;
    for (const method of METHODS.filter((method) => operations[method])) {
      const { operationId, parameters = [], requestBody, responses } = operations[method];
      want([requestBody, responses]);
      const query = bare(parameters.filter((parameter) => parameter.in === "query"));
      // Bodies and answers are named by their schemas: here only what a query may have.
      paths[path] ??= {};
      if (query.length > 0) paths[path][method] = { operationId, parameters: query, responses: {} };
    }
  }
  const schemas = Object.entries(document.components.schemas);
  const kept = schemas.filter(([name]) => wanted.has(name)).map(([name, it]) => [name, bare(it)]);
  return {
    openapi: document.openapi,
    info: document.info,
    paths,
    components: { schemas: Object.fromEntries(kept) },
  };
}

/** What only adds comments to a type, and discriminators, which a `const` of each variant says. */
const SUPERFLUOUS = ["example", "examples", "format", "default", "discriminator"];

/** A copy of a schema as the generator understands it. */
function bare(value, isSchema = true) {
  if (Array.isArray(value)) return value.map((item) => bare(item));
  if (value === null || typeof value !== "object") return value;
  if (isSchema && value.$ref && value.properties) {
    // It ignores what stands beside a reference.
    const { $ref, description, ...own } = value;
    return { description, allOf: [{ $ref }, bare(own)] };
  }
  const kept = Object.entries(value).filter(
    ([name]) => !isSchema || !SUPERFLUOUS.includes(name));
  return Object.fromEntries(
    kept.map(([name, item]) => [name, bare(item, !(isSchema && name === "properties"))]));
}

/** Removes what the client does not use, and half of the indentation. */
function tidied(text) {
  return text
    .replace(/^export interface paths \{[\s\S]*?^\}\n/m, "")
    .replace(/^export type (webhooks|\$defs) = .*\n/gm, "")
    .replace(/^ *(responses|parameters|requestBodies|headers|pathItems): never;\n/gm, "")
    .replace(/^ +(header|path|cookie|requestBody)\?: never;\n/gm, "")
    .replace(/^ +responses: (never|\{\s*\});\n/gm, "")
    .replace(/^ +\* @enum .*\n/gm, "")
    .replace(/^ +\/\*\* @enum .*\n/gm, "")
    .replace(/^ +\/\*\* @constant \*\/\n/gm, "")
    .replace(/^ +\* @constant\n/gm, "")
    .replace(/@description /g, "")
    .replace(/\/\*\*\n +\* ([^\n]*)\n +\*\//g, "/** $1 */")
    .replace(/^( +)/gm, (spaces) => " ".repeat(Math.ceil(spaces.length / 2)))
    .replace(/[ \t]+$/gm, "");
}

/** What the client reads when it runs. */
function contract(document, hash) {
  const codes = document.components.schemas.ErrorCode.enum;
  const keyed = [];
  for (const [path, operations] of Object.entries(document.paths)) {
    if (LEFT_OUT.some((prefix) => path.startsWith(prefix))) continue;
    for (const { operationId, parameters = [] } of METHODS.map((it) => operations[it] ?? {})) {
      const isKeyed = parameters.some(
        (it) => it.in === "header" && it.name.toLowerCase() === "idempotency-key"
          && it["x-cove-resend"] !== false);
      if (isKeyed && operationId) keyed.push(operationId);
    }
  }
  const list = (names) => names.map((name) => `  ${JSON.stringify(name)},\n`).join("");
  return `// Generated from crates/api/openapi.json, sha256:${hash}
// By \`npm run generate\`; do not edit.

/** Version of the interface that these types are of. */
export const API_VERSION = ${JSON.stringify(document.info.version)};

/** Codes of errors, by which there is a class for each. */
export const ERROR_CODES = [
${list(codes)}] as const;

/** Operations that take the header \`idempotency-key\`: sent twice, they make one thing. */
export const KEYED_OPERATIONS: ReadonlySet<string> = /* @__PURE__ */ new Set([
${list(keyed)}]);
`;
}

const bytes = readFileSync(DOCUMENT);
const hash = createHash("sha256").update(bytes).digest("hex");
const document = JSON.parse(bytes);
const ast = await openapiTS(selected(document), { defaultNonNullable: false, alphabetize: false });
const files = {
  "src/schema.ts": `// Generated from crates/api/openapi.json, sha256:${hash}
// By \`npm run generate\`; do not edit.

${tidied(astToString(ast))}`,
  "src/contract.ts": contract(document, hash),
};
for (const [name, text] of Object.entries(files)) {
  const path = new URL(`../${name}`, import.meta.url);
  if (!process.argv.includes("--check")) {
    writeFileSync(path, text);
  } else if (readFileSync(path, "utf8") !== text) {
    console.error(`${name} is not of this crates/api/openapi.json: run \`npm run generate\``);
    process.exitCode = 1;
  }
}
