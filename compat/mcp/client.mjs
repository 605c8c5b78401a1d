// The official TypeScript SDKs of the Model Context Protocol, unmodified, against Cove.
//
//     node client.mjs SDK http URL TOKEN
//     node client.mjs SDK stdio COMMAND [ARGUMENT ...]
//
// SDK is `v1` (@modelcontextprotocol/sdk, which begins with `initialize`), `v2`
// (@modelcontextprotocol/client, stateless) or `v2-legacy`. Prints one line of JSON for each check,
// {name, ok, detail}, and ends with 1 if one failed.

import assert from "node:assert/strict";

const [, , sdk, transport, ...rest] = process.argv;

async function connect() {
  const info = { name: "cove-compat", version: "1.0.0" };
  if (sdk === "v1") {
    const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
    const client = new Client(info, { capabilities: {} });
    if (transport === "http") {
      const { StreamableHTTPClientTransport } = await import(
        "@modelcontextprotocol/sdk/client/streamableHttp.js"
      );
      await client.connect(new StreamableHTTPClientTransport(new URL(rest[0]), withToken(rest[1])));
    } else {
      const { StdioClientTransport } = await import("@modelcontextprotocol/sdk/client/stdio.js");
      const [command, ...args] = rest;
      await client.connect(new StdioClientTransport({ command, args }));
    }
    return client;
  }
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  const mode = sdk === "v2" ? "auto" : "legacy";
  const client = new Client(info, { capabilities: {}, versionNegotiation: { mode } });
  if (transport === "http") {
    await client.connect(new StreamableHTTPClientTransport(new URL(rest[0]), withToken(rest[1])));
  } else {
    const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
    const [command, ...args] = rest;
    await client.connect(new StdioClientTransport({ command, args }));
  }
  return client;
}

function withToken(token) {
  return { requestInit: { headers: { authorization: `Bearer ${token}` } } };
}

const text = (result) => result.content[0].text;
const call = (client, name, given) => client.callTool({ name, arguments: given });

const checks = {
  async the_server_says_who_it_is(client) {
    assert.equal(client.getServerVersion().name, "cove");
    assert.ok(client.getServerCapabilities().tools);
    assert.match(client.getInstructions(), /sandboxes/);
  },
  async the_revision_is_the_newest_that_both_speak(client) {
    const expected = { v1: /^2025-/, v2: /^2026-07-28$/, "v2-legacy": /^2025-11-25$/ }[sdk];
    if (client.getNegotiatedProtocolVersion) {
      assert.match(client.getNegotiatedProtocolVersion(), expected);
    }
  },
  async tools_are_listed_with_schemas(client) {
    const { tools } = await client.listTools();
    assert.equal(tools[0].name, "run_code");
    assert.ok(tools.length <= 10);
    for (const tool of tools) assert.equal(tool.inputSchema.type, "object", tool.name);
  },
  async a_program_runs(client) {
    const result = await call(client, "run_code", { language: "py", code: "print(6 * 7)" });
    assert.ok(!result.isError && text(result).startsWith("42\n[verdict OK"), text(result));
    assert.equal(result.structuredContent.verdict, "OK");
  },
  async a_program_that_fails_is_a_result(client) {
    const result = await call(client, "run_code", { language: "bash", code: "exit 3" });
    assert.ok(!result.isError && text(result).includes("exit code 3"), text(result));
  },
  async a_wrong_argument_is_an_error_of_the_tool(client) {
    const result = await call(client, "run_code", { language: "none", code: "" });
    assert.ok(result.isError, text(result));
  },
  async an_unknown_tool_is_an_error_of_the_protocol(client) {
    await assert.rejects(call(client, "nothing", {}), (error) => error.code === -32602);
  },
  async an_unknown_resource_is_an_error_of_the_protocol(client) {
    const uri = "cove://sessions/ses_00000000000000000000000000/files/none";
    await assert.rejects(client.readResource({ uri }));
  },
  async a_session_keeps_files(client) {
    const made = await call(client, "session", { action: "create" });
    const session = made.structuredContent.id;
    const path = "d ü/note.txt";
    await call(client, "write_file", { session, path, content: "one\n" });
    const done = await call(client, "run_command", { session, command: "cat 'd ü'/note.txt" });
    assert.equal(text(done), "one\n[exit code 0]");
    const read = await call(client, "read_file", { session, path });
    const link = read.content.find((block) => block.type === "resource_link");
    const { contents } = await client.readResource({ uri: link.uri });
    assert.equal(contents[0].text, "one\n");
    assert.ok(!(await call(client, "session", { action: "end", session })).isError);
    assert.ok((await call(client, "read_file", { session, path })).isError);
  },
  async templates_of_resources_are_listed(client) {
    const { resourceTemplates } = await client.listResourceTemplates();
    assert.match(resourceTemplates[0].uriTemplate, /^cove:/);
  },
  async many_calls_are_under_way_at_once(client) {
    const numbers = [...Array(8).keys()];
    const given = (number) => ({ language: "py", code: `print(${number})` });
    const results = await Promise.all(numbers.map((it) => call(client, "run_code", given(it))));
    for (const number of numbers) assert.ok(text(results[number]).startsWith(`${number}\n`));
  },
};

const client = await connect();
let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  try {
    await check(client);
    console.log(JSON.stringify({ name, ok: true }));
  } catch (error) {
    failed += 1;
    console.log(JSON.stringify({ name, ok: false, detail: String(error.stack ?? error) }));
  }
}
await client.close();
process.exit(failed === 0 ? 0 : 1);
