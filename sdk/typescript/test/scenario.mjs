// What has to work in every runtime: it gets the package and returns what it saw.

/** Uses the client as a program would; throws where something is not as it should be. */
export async function scenario(sdk, { url, token, WebSocket }) {
  const cove = new sdk.Cove({ url, token, WebSocket });
  const seen = [];
  const result = await cove.run({ language: "python", source: "print(6 * 7)" });
  seen.push(`${result.verdict} ${result.stdout.trim()}`);
  const { id } = await cove.executions.submit({ language: "bash", source: "echo out" });
  for await (const event of cove.executions.watch(id)) {
    if (event.type === "stdout") seen.push(new TextDecoder().decode(sdk.outputOf(event)).trim());
  }
  const error = await cove.executions.get("ex_none").catch((it) => it);
  seen.push(error instanceof sdk.NotFoundError ? error.code : String(error));
  const session = await cove.sessions.create();
  await session.files.write("note", "kept");
  const listed = await session.exec("cat note; cat", { stdin: " here" });
  seen.push(listed.stdout);
  const program = await cove.executions.open({ language: "python", source: "print(input())" });
  program.write("typed\n");
  seen.push((await program.result()).stdout.trim());
  const live = cove.live();
  const topic = live.subscribe("session.events", { session: session.id, after: 0 });
  seen.push((await topic.next()).value.type);
  await topic.return();
  live.close();
  await session.end();
  return seen;
}

/** What it sees. */
export const EXPECTED = ["OK 42", "out", "not_found", "kept here", "typed", "lifecycle"];
