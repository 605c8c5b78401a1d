// A proxy that adds a token to every request, for clients that cannot send one.
//
//     node with_token.mjs PORT TOKEN
//
// Prints `listening on http://127.0.0.1:PORT`; everything else of a request passes as it is.

import http from "node:http";

const [, , port, token] = process.argv;

const server = http.createServer((request, response) => {
  const headers = { ...request.headers, authorization: `Bearer ${token}` };
  const { method, url: path } = request;
  const passed = http.request({ host: "127.0.0.1", port, method, path, headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
  });
  passed.on("error", () => response.destroy());
  response.on("close", () => passed.destroy());
  request.pipe(passed);
});
server.listen(0, "127.0.0.1", () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}`);
});
