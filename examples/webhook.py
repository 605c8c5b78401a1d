"""Takes webhooks and says of each whether it is genuine."""
import base64, hashlib, hmac, json, os, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer

KEY = base64.b64decode(os.environ["WEBHOOK_SECRET"].removeprefix("whsec_"))

def genuine(headers, body):
    ident, sent = headers["webhook-id"], headers["webhook-timestamp"]
    signed = b".".join([ident.encode(), sent.encode(), body])
    expected = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
    given = headers["webhook-signature"].removeprefix("v1,")
    return hmac.compare_digest(given, expected) and abs(time.time() - int(sent)) < 300

class Hook(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        ok = genuine(self.headers, body)
        self.send_response(204 if ok else 400)
        self.end_headers()
        if ok:
            record = json.loads(body)
            verdict = record.get("result", {}).get("verdict")
            print(record["id"], record["state"], verdict, flush=True)

HTTPServer(("127.0.0.1", int(sys.argv[1])), Hook).serve_forever()
