"""A package index, a registry and a repository on the loopback, in place of the internet.

Serves at 127.0.0.2, at a port of its own, which it prints: `/simple` is an index of Python packages
(PEP 503) with one wheel, `/npm` a registry with one package, `/git/notes.git` a repository. All are
made here. Every path that is asked for is a line of standard output.
"""

import base64
import hashlib
import http.server
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile

HOST = "127.0.0.2"


def wheel():
    """The wheel of `greetings` 1.0, with a command and a module."""
    info = "greetings-1.0.dist-info"
    files = {
        "greetings.py": "def main():\n    print('hello from a wheel')\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: greetings\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\ngreet = greetings:main\n",
    }
    record = ""
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(text)}\n"
    files[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return packed.getvalue()


def tarball():
    """The package `shouter` 1.0.0."""
    packed = io.BytesIO()
    files = {
        "package/package.json": json.dumps({"name": "shouter", "version": "1.0.0", "bin": {"shout": "shout.js"}}),
        "package/shout.js": "#!/usr/bin/env node\nconsole.log('HELLO FROM A TARBALL')\n",
    }
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text), 0o755
            archive.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()


def repository(directory):
    """A bare repository with one commit, as plain files."""
    work, bare = os.path.join(directory, "work"), os.path.join(directory, "notes.git")
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    git = lambda *words: subprocess.run(["git", *words], check=True, capture_output=True, env=environment)
    git("init", "-q", "-b", "main", work)
    with open(os.path.join(work, "note.txt"), "w") as file:
        file.write("from a repository\n")
    name = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
    git("-C", work, "add", ".")
    git("-C", work, *name, "commit", "-q", "-m", "note")
    git("clone", "-q", "--bare", work, bare)
    git("-C", bare, "update-server-info")
    return bare


WHEEL, TARBALL = wheel(), tarball()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.path.split("?")[0]
        print(path, flush=True)
        origin = f"http://{HOST}:{self.server.server_port}"
        if path == "/simple/greetings/":
            digest = hashlib.sha256(WHEEL).hexdigest()
            link = f"{origin}/files/greetings-1.0-py3-none-any.whl#sha256={digest}"
            self.answer(200, "text/html", f'<a href="{link}">greetings-1.0-py3-none-any.whl</a>'.encode())
        elif path.startswith("/files/"):
            self.answer(200, "application/octet-stream", WHEEL)
        elif path == "/npm/shouter":
            dist = {"tarball": f"{origin}/npm/shouter/-/shouter-1.0.0.tgz", "shasum": hashlib.sha1(TARBALL).hexdigest()}
            version = {"name": "shouter", "version": "1.0.0", "bin": {"shout": "shout.js"}, "dist": dist}
            document = {"name": "shouter", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
            self.answer(200, "application/json", json.dumps(document).encode())
        elif path.startswith("/npm/shouter/-/"):
            self.answer(200, "application/octet-stream", TARBALL)
        elif path.startswith("/git/notes.git/"):
            file = os.path.join(self.server.repository, os.path.normpath(path[len("/git/notes.git/"):]))
            if os.path.isfile(file) and ".." not in path:
                with open(file, "rb") as content:
                    self.answer(200, "application/octet-stream", content.read())
            else:
                self.answer(404, "text/plain", b"no")
        else:
            self.answer(404, "text/plain", b"no")

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def main():
    with tempfile.TemporaryDirectory() as directory:
        server = http.server.ThreadingHTTPServer((HOST, 0), Handler)
        server.repository = repository(directory)
        print(server.server_port, flush=True)
        # Whoever started it closes its input, also by dying.
        import threading
        threading.Thread(target=lambda: (sys.stdin.read(), server.shutdown()), daemon=True).start()
        server.serve_forever()


if __name__ == "__main__":
    main()
