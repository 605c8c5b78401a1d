// What the tests share: a client, a proxy with faults, and the server's parent.

import { readFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { createServer as createHttpServer, request } from "node:http";
import { createInterface } from "node:readline";
import WebSocket from "ws";
import { Cove } from "@cove/sdk";

export const URL_OF_SERVER = process.env.COVE_URL;
export const TOKEN = process.env.COVE_TOKEN;
/** Time for what happens at once, on a machine that may be busy. */
export const DEADLINE_MS = 60_000;

/** A client of the real server. */
export function client(options = {}) {
  return new Cove({ url: address(), token: TOKEN, WebSocket, ...options });
}

let behind = URL_OF_SERVER;

/** Address of the server now. */
export function address() {
  return behind;
}

const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
async function parent(what) {
  console.log(`server: ${what}`);
  return (await answers.next()).value ?? "";
}

/** The server, as a parent can treat it. */
export const server = {
  kill: () => parent("kill"),
  async restart() { behind = await parent("restart"); },
};

/** Lets the process end although its parent may still say something. */
export function hangUp() {
  process.stdin.destroy();
}

/** A way to the server, wherever that comes back. */
export async function stableWay() {
  const sockets = new Set();
  const proxy = createServer((front) => {
    const { hostname, port } = new URL(address());
    const back = connect({ host: hostname, port: Number(port) });
    for (const socket of [front, back]) {
      sockets.add(socket);
      socket.on("close", () => { sockets.delete(socket); front.destroy(); back.destroy(); });
      socket.on("error", () => {});
    }
    front.pipe(back);
    back.pipe(front);
  });
  await new Promise((resolve) => { proxy.listen(0, "127.0.0.1", resolve); });
  return {
    url: `http://127.0.0.1:${proxy.address().port}`,
    cut: () => sockets.forEach((socket) => socket.destroy()),
    close: () => { proxy.close(); sockets.forEach((socket) => socket.destroy()); },
  };
}

/** A server that answers as `answer` says; without an answer it hands the request on. */
export async function faultyWay(answer) {
  const seen = [];
  const proxy = createHttpServer((incoming, outgoing) => {
    const chunks = [];
    incoming.on("data", (chunk) => chunks.push(chunk));
    incoming.on("end", () => {
      seen.push({ method: incoming.method, url: incoming.url, headers: incoming.headers });
      const fault = answer(incoming, seen.length);
      if (fault?.status !== undefined) {
        outgoing.writeHead(fault.status, fault.headers).end(fault.body ?? "");
        return;
      }
      const { hostname, port } = new URL(address());
      const { method, url: path, headers } = incoming;
      const passed = request({ hostname, port, method, path, headers }, (response) => {
        if (fault?.isLost) {
          // The server has done what was asked; nobody hears of it.
          response.resume();
          response.on("end", () => outgoing.destroy());
          return;
        }
        outgoing.writeHead(response.statusCode, response.headers);
        response.pipe(outgoing);
      });
      passed.on("error", () => outgoing.destroy());
      passed.end(Buffer.concat(chunks));
    });
  });
  await new Promise((resolve) => { proxy.listen(0, "127.0.0.1", resolve); });
  return {
    seen,
    url: `http://127.0.0.1:${proxy.address().port}`,
    close: () => { proxy.close(); proxy.closeAllConnections(); },
  };
}

const ECHO = `${process.env.COVE_PAGES}/examples/agents/echo/agent.py`;

/** Deploys the agent that says what it hears. */
export async function deployEcho() {
  await client().agents.deploy({
    name: "echo", runtime: { type: "command", argv: ["python3", "agent.py"] },
    files: [{ path: "agent.py", content: readFileSync(ECHO, "utf8") }],
  });
}
