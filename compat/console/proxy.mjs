// The browser's way to the server: it stays at one address while the server comes back at another,
// and can be cut.
import { connect, createServer } from 'node:net';

/** Opens the proxy at a free port, to the address `behind`. */
export async function openProxy(behind) {
  let target = new URL(behind);
  let isCut = false;
  const sockets = new Set();
  const listener = createServer((front) => {
    if (isCut) { front.destroy(); return; }
    const back = connect({ host: target.hostname, port: Number(target.port) });
    for (const socket of [front, back]) {
      // No piece waits for another one: delays that are measured are those of the server.
      socket.setNoDelay(true);
      sockets.add(socket);
      socket.on('close', () => { sockets.delete(socket); front.destroy(); back.destroy(); });
      socket.on('error', () => {});
    }
    front.pipe(back);
    back.pipe(front);
  });
  await new Promise((resolve) => { listener.listen(0, '127.0.0.1', resolve); });
  const drop = () => { for (const socket of sockets) socket.destroy(); };
  return {
    base: `http://127.0.0.1:${listener.address().port}`,
    /** Leads to another address from now on. */
    lead(to) { target = new URL(to); },
    /** Ends all connections, and takes none until `mend`. */
    cut() { isCut = true; drop(); },
    mend() { isCut = false; },
    close() { listener.close(); drop(); },
  };
}
