"""Runs the cells of a notebook one after another in this process, without Jupyter or IPython.

Standard input is {"cells": [source, ...], "cell_timeout": seconds}. For each cell, one line of JSON
goes to standard output: {"stdout", "stderr", "display": [bundle, ...], "error": [error, ...]}, where
a bundle maps MIME types to data and an error has `ename`, `evalue` and `traceback`, as in messages of
Jupyter (https://jupyter-client.readthedocs.io/en/stable/messaging.html).

Whatever cells do to this process, they do to their own results alone.
"""

import ast
import base64
import builtins
import importlib.machinery
import io
import json
import linecache
import os
import signal
import subprocess
import sys
import traceback
import types

# Bytes that are reported of each stream of a cell.
STREAM_BYTES_MAX = 1 << 20
# Line length at which IPython breaks containers.
WIDTH = 79
# Set in code objects that have to be awaited (inspect.CO_COROUTINE).
CO_COROUTINE = 0x80
BACKEND = "cove_inline"

# MIME types, and the methods of objects that give them (https://ipython.readthedocs.io/en/stable/config/integrating.html).
METHODS = [
    ("text/html", "_repr_html_"),
    ("text/markdown", "_repr_markdown_"),
    ("text/latex", "_repr_latex_"),
    ("image/svg+xml", "_repr_svg_"),
    ("image/png", "_repr_png_"),
    ("image/jpeg", "_repr_jpeg_"),
    ("application/json", "_repr_json_"),
    ("application/javascript", "_repr_javascript_"),
]


class Capture:
    """Standard output or error of the process and its children, in a file without a name."""

    def __init__(self, descriptor):
        self.file = os.open("/tmp", os.O_TMPFILE | os.O_RDWR, 0o600)
        os.dup2(self.file, descriptor)

    def take(self):
        length = os.fstat(self.file).st_size
        data = os.pread(self.file, min(length, STREAM_BYTES_MAX), 0)
        os.ftruncate(self.file, 0)
        os.lseek(self.file, 0, os.SEEK_SET)
        return data.decode("utf-8", "replace")


def plain(value):
    text = repr(value)
    if len(text) > WIDTH and isinstance(value, (dict, list, tuple, set, frozenset)):
        import pprint

        text = pprint.pformat(value, width=WIDTH, sort_dicts=False)
    return text


def encoded(data):
    return base64.b64encode(data).decode() if isinstance(data, bytes) else data


def is_figure(value):
    module = sys.modules.get("matplotlib.figure")
    return module is not None and isinstance(value, module.Figure)


def png_of(figure):
    file = io.BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight")
    return file.getvalue()


def bundle(value):
    """What a value looks like, by MIME type."""
    found = {}
    if is_figure(value):
        found["image/png"] = encoded(png_of(value))
    whole = getattr(type(value), "_repr_mimebundle_", None)
    if whole is not None:
        try:
            data = whole(value, include=None, exclude=None)
            data = data[0] if isinstance(data, tuple) else data
            found.update({kind: encoded(part) for kind, part in (data or {}).items()})
        except Exception:
            traceback.print_exc()
    for kind, name in METHODS:
        method = getattr(type(value), name, None)
        if method is None or kind in found:
            continue
        try:
            data = method(value)
        except Exception:
            traceback.print_exc()
            continue
        data = data[0] if isinstance(data, tuple) else data
        if data is not None:
            found[kind] = encoded(data)
    found.setdefault("text/plain", plain(value))
    return found


class Notebook:
    def __init__(self):
        main = types.ModuleType("__main__")
        main.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = main
        self.space = main.__dict__
        self.space.update(display=self.display, __cove_shell=self.shell, __cove_magic=self.magic)
        self.shown = []
        self.loop = None

    def display(self, *values, raw=False, **_):
        for value in values:
            self.shown.append(dict(value) if raw else bundle(value))

    def figures(self, *_, **__):
        """Shows the figures that are open, and closes them."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is not None:
            for number in pyplot.get_fignums():
                self.display(pyplot.figure(number))
            pyplot.close("all")

    def shell(self, command):
        subprocess.run(["/bin/bash", "-c", command], stdin=subprocess.DEVNULL)

    def magic(self, line):
        name, _, rest = line.lstrip("%").partition(" ")
        if name == "pip":
            return self.shell(f"{sys.executable} -m pip {rest}")
        if name != "matplotlib":
            raise NameError(f"there is no magic `{name}` here: cells run without IPython")

    def parse(self, source, name):
        try:
            return ast.parse(source, name)
        except SyntaxError as error:
            lines = []
            for line in source.split("\n"):
                bare = line.lstrip()
                indent = line[: len(line) - len(bare)]
                if bare.startswith("!"):
                    line = f"{indent}__cove_shell({bare[1:]!r})"
                elif bare.startswith("%"):
                    line = f"{indent}__cove_magic({bare!r})"
                lines.append(line)
            try:
                return ast.parse("\n".join(lines), name)
            except SyntaxError:
                raise error from None

    def run_code(self, tree, name, mode):
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(tree, name, mode, flags=flags, dont_inherit=True)
        result = eval(code, self.space)
        if code.co_flags & CO_COROUTINE:
            if self.loop is None:
                import asyncio

                self.loop = asyncio.new_event_loop()
                asyncio.set_event_loop(self.loop)
            result = self.loop.run_until_complete(result)
        return result

    def run_cell(self, source, number):
        name = f"<cell {number}>"
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        errors = []
        try:
            tree = self.parse(source, name)
            last = None
            if tree.body and isinstance(tree.body[-1], ast.Expr):
                last = ast.Expression(tree.body.pop().value)
            self.run_code(tree, name, "exec")
            value = None if last is None else self.run_code(last, name, "eval")
            # As in IPython, a semicolon at the end hides a value.
            if value is not None and not source.rstrip().endswith(";"):
                self.space["_"] = value
                self.display(value)
            self.figures()
        except BaseException as error:
            errors.append(described(error))
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        shown, self.shown = self.shown, []
        return shown, errors


def described(error):
    """An error as Jupyter reports it, without the frames of this file."""
    trace = error.__traceback__
    while trace is not None and not trace.tb_frame.f_code.co_filename.startswith("<cell "):
        trace = trace.tb_next
    kind = type(error)
    try:
        said = str(error)
    except Exception:
        said = "<str() of the error failed>"
    lines = traceback.TracebackException(kind, error, trace).format()
    return {"ename": kind.__name__, "evalue": said, "traceback": [line.rstrip("\n") for line in lines]}


class Modules:
    """Modules that exist only here: a backend of matplotlib, and of IPython what shows things."""

    def __init__(self, notebook):
        self.notebook = notebook
        self.names = {BACKEND, "IPython", "IPython.display"}

    def find_spec(self, name, path=None, target=None):
        if name in self.names:
            return importlib.machinery.ModuleSpec(name, self, is_package=name == "IPython")
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        if module.__name__ == BACKEND:
            from matplotlib.backends import backend_agg

            kept = {name: value for name, value in vars(backend_agg).items() if not name.startswith("__")}
            vars(module).update(kept, show=self.notebook.figures)
        elif module.__name__ == "IPython.display":
            module.display = self.notebook.display
            module.clear_output = lambda wait=False: None
            kinds = dict(METHODS)
            for name, kind in [
                ("HTML", "text/html"),
                ("Markdown", "text/markdown"),
                ("Latex", "text/latex"),
                ("SVG", "image/svg+xml"),
                ("Image", "image/png"),
                ("JSON", "application/json"),
                ("Javascript", "application/javascript"),
            ]:
                members = {"__init__": set_data, kinds[kind]: get_data}
                setattr(module, name, type(name, (), members))


def set_data(self, data=None, filename=None, **_):
    if data is None and filename is not None:
        with open(filename, "rb") as file:
            data = file.read()
    self.data = data


def get_data(self):
    return self.data


def main():
    wanted = json.load(sys.stdin)
    results = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.environ.setdefault("MPLBACKEND", f"module://{BACKEND}")
    streams = {"stdout": Capture(1), "stderr": Capture(2)}
    notebook = Notebook()
    sys.meta_path.insert(0, Modules(notebook))
    for number, source in enumerate(wanted["cells"], 1):
        # The default action of the signal ends the process, whatever it is doing.
        signal.setitimer(signal.ITIMER_REAL, wanted["cell_timeout"])
        shown, errors = notebook.run_cell(source, number)
        signal.setitimer(signal.ITIMER_REAL, 0)
        result = {name: stream.take() for name, stream in streams.items()}
        result.update(display=shown, error=errors)
        results.write(json.dumps(result, default=str) + "\n")
        results.flush()
    # Threads that cells have left do not hold up the answer.
    os._exit(0)


main()
