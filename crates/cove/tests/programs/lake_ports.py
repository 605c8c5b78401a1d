"""Tries to make a namespace at every port of the sandbox that somebody listens on."""

import urllib.error
import urllib.request

rows = [row.split() for row in open("/proc/net/tcp").read().splitlines()[1:]]
ports = [int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A"]
for port in sorted(ports):
    url = f"http://127.0.0.1:{port}/v1/lake/namespaces"
    body = b'{"namespace": ["made"]}'
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    try:
        status = urllib.request.urlopen(request).status
    except urllib.error.HTTPError as error:
        status = error.code
    print("own" if port == 8181 else "beside", status)
