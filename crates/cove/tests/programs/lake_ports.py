"""Tries to make a namespace at every port of the sandbox that somebody listens on."""

import socket
import urllib.error
import urllib.request

for port in range(1024, 65536):
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)) != 0:
            continue
        # A port of nobody's that the kernel has just given to the probe itself.
        if probe.getsockname() == probe.getpeername():
            continue
    url = f"http://127.0.0.1:{port}/v1/lake/namespaces"
    body = b'{"namespace": ["made"]}'
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    try:
        status = urllib.request.urlopen(request).status
    except urllib.error.HTTPError as error:
        status = error.code
    print("own" if port == 8181 else "beside", status)
