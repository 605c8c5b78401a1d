"""Runs cells of Python one after the other in one namespace, with the standard library alone.

A driver is appended to this text: it makes a `PlainCells` and says what becomes of values that are
shown and of errors. A value is shown as a bundle of representations by MIME type, as in messages of
Jupyter (https://jupyter-client.readthedocs.io/en/stable/messaging.html).
"""

import ast
import base64
import builtins
import importlib.machinery
import importlib.util
import io
import linecache
import os
import subprocess
import sys
import textwrap
import traceback
import types

# Line length at which IPython breaks containers.
WIDTH = 79
# Set in code objects that have to be awaited (inspect.CO_COROUTINE).
CO_COROUTINE = 0x80
# Backend of matplotlib that draws in memory.
FIGURES = "cove_figures"

# MIME types, and the methods of objects that give them
# (https://ipython.readthedocs.io/en/stable/config/integrating.html).
METHODS = (
    ("text/html", "_repr_html_"),
    ("text/markdown", "_repr_markdown_"),
    ("text/latex", "_repr_latex_"),
    ("image/svg+xml", "_repr_svg_"),
    ("image/png", "_repr_png_"),
    ("image/jpeg", "_repr_jpeg_"),
    ("application/pdf", "_repr_pdf_"),
    ("application/json", "_repr_json_"),
    ("application/javascript", "_repr_javascript_"),
)


def flush():
    """Writes out what the streams hold."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            # A program may have replaced or closed it.
            pass


def is_of(value, module, name):
    """Returns whether a value is of a class, without importing it."""
    loaded = sys.modules.get(module)
    kind = getattr(loaded, name, None)
    return isinstance(kind, type) and isinstance(value, kind)


# ---- representations -----------------------------------------------------------------------------


def plain_text(value):
    text = repr(value)
    if len(text) > WIDTH and isinstance(value, (dict, list, tuple, set, frozenset)):
        import pprint

        text = pprint.pformat(value, width=WIDTH, sort_dicts=False)
    return text


def encoded(data):
    return base64.b64encode(data).decode() if isinstance(data, bytes) else data


def display_method(value, name):
    """Returns a method that represents a value; none if it has none of that name."""
    if isinstance(value, type):
        return None
    try:
        # An object that has whatever it is asked for means nothing by that, as in IPython.
        if hasattr(value, "_ipython_canary_method_should_not_exist_"):
            return None
        method = getattr(value, name, None)
    except Exception:
        return None
    return method if callable(method) else None


def represented(method, *args, **kwargs):
    """Calls a method that represents a value: one that fails is reported and has no result."""
    try:
        data = method(*args, **kwargs)
    except Exception:
        traceback.print_exc()
        return None
    # Metadata may come with it.
    return data[0] if isinstance(data, tuple) else data


def representations(value):
    """Returns what a value looks like, by MIME type."""
    if is_of(value, "matplotlib.figure", "Figure"):
        return figure_bundle(value)
    found = {}
    whole = display_method(value, "_repr_mimebundle_")
    if whole is not None:
        data = represented(whole, include=None, exclude=None)
        if isinstance(data, dict):
            found.update({kind: encoded(part) for kind, part in data.items()})
    for kind, name in METHODS:
        method = display_method(value, name)
        data = None if method is None or kind in found else represented(method)
        if data is not None:
            found[kind] = encoded(data)
    if "text/plain" not in found:
        found["text/plain"] = plain_text(value)
    return found


# ---- figures of matplotlib -----------------------------------------------------------------------


def figure_png(figure):
    """Returns a figure as a picture, without the margins around it."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight", dpi=figure.dpi)
    return buffer.getvalue()


def figure_bundle(figure):
    width, height = (int(side) for side in figure.get_size_inches() * figure.dpi)
    text = "<Figure size %dx%d with %d Axes>" % (width, height, len(figure.axes))
    picture = encoded(represented(figure_png, figure))
    return {"text/plain": text, **({} if picture is None else {"image/png": picture})}


def draw_in_memory(matplotlib, show_figure):
    """Has figures drawn in memory, and shown by `show_figure`."""
    from matplotlib import _pylab_helpers
    from matplotlib.backends import backend_agg

    managers = _pylab_helpers.Gcf

    def show(*_args, **_kwargs):
        for manager in managers.get_all_fig_managers():
            show_figure(manager.canvas.figure)
        managers.destroy_all()

    backend = types.ModuleType(FIGURES)
    backend.FigureCanvas = backend_agg.FigureCanvasAgg
    backend.show = show
    sys.modules[FIGURES] = backend
    # Not by the environment, which programs that a cell starts would have as well.
    matplotlib.rcParams["backend"] = "module://" + FIGURES
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.switch_backend("module://" + FIGURES)


def show_open_figures():
    """Shows what a cell has drawn and not shown."""
    pyplot, backend = sys.modules.get("matplotlib.pyplot"), sys.modules.get(FIGURES)
    if pyplot is not None and backend is not None:
        backend.show()


class ImportHook:
    """Patches modules as they are imported."""

    def __init__(self, patches):
        self.patches = patches

    def find_spec(self, name, path=None, target=None):
        patch = self.patches.pop(name, None)
        if patch is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            patch(module)

        spec.loader.exec_module = exec_module
        return spec


# ---- cells ---------------------------------------------------------------------------------------


def shell_command(command):
    """Runs a line for the shell, with the streams of this process. Returns its exit code."""
    flush()
    shell = os.environ.get("SHELL") or ("/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh")
    try:
        return subprocess.call(
            command, shell=True, executable=shell, stdin=subprocess.DEVNULL)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def run_shell_line(line):
    """Runs a line for the shell, whose exit code is no value."""
    shell_command(line)


def run_magic(line):
    name, _, rest = line.lstrip("%").partition(" ")
    if name == "pip":
        shell_command("%s -m pip %s" % (sys.executable, rest))
    elif name != "matplotlib":
        raise NameError("there is no magic `%s` here: cells run without IPython" % name)


class PlainCells:
    """Cells that share a namespace.

    `show` takes a bundle and whether it is the value of the cell, `fail` the name, the text and the
    traceback's lines of an error. `extra` returns representations of a value beside its own.
    """

    def __init__(self, show, fail, extra=lambda _value: {}):
        self.show = show
        self.fail = fail
        self.extra = extra
        self.loop = None
        main = types.ModuleType("__main__")
        main.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = main
        self.space = main.__dict__
        self.space.update(
            display=self.display, __cove_shell=run_shell_line, __cove_magic=run_magic)

    def bundle(self, value):
        return {**representations(value), **self.extra(value)}

    def display(self, *values, raw=False, **_):
        for value in values:
            self.show(dict(value) if raw else self.bundle(value), False)

    def run(self, source, number):
        name = "<cell %d>" % number
        source = textwrap.dedent(source)
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        try:
            value = self.evaluate(source, name)
            # As in IPython, a semicolon at the end hides a value.
            if value is not None and not source.rstrip().endswith(";"):
                self.space["_"] = value
                self.show(self.bundle(value), True)
        except BaseException as error:
            self.explain(error)
        try:
            show_open_figures()
        except BaseException as error:
            self.explain(error)
        flush()

    def evaluate(self, source, name):
        tree = parsed(source, name)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        self.execute(tree, name, "exec")
        return None if last is None else self.execute(last, name, "eval")

    def execute(self, tree, name, mode):
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(tree, name, mode, flags=flags, dont_inherit=True)
        result = eval(code, self.space)
        if code.co_flags & CO_COROUTINE:
            result = self.wait_for(result)
        return result

    def wait_for(self, coroutine):
        import asyncio

        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
        return self.loop.run_until_complete(coroutine)

    def leave_loop(self):
        """Returns the event loop of `await`, which the next cell is to have anew."""
        loop, self.loop = self.loop, None
        return loop

    def explain(self, error):
        """Reports an error, without the frames of this file."""
        trace = error.__traceback__
        while trace is not None and not trace.tb_frame.f_code.co_filename.startswith("<cell "):
            trace = trace.tb_next
        kind = type(error)
        try:
            text = str(error)
        except Exception:
            text = "<str() of the error failed>"
        lines = list(traceback.TracebackException(kind, error, trace).format())
        self.fail(kind.__name__, text, lines)


def parsed(source, name):
    """Parses a cell. In one that is no Python, `!` and `%` begin lines for the shell and magics."""
    try:
        return ast.parse(source, name)
    except SyntaxError as error:
        lines = []
        for line in source.split("\n"):
            bare = line.lstrip()
            indent = line[: len(line) - len(bare)]
            if bare.startswith("!"):
                line = "%s__cove_shell(%r)" % (indent, bare[1:])
            elif bare.startswith("%"):
                line = "%s__cove_magic(%r)" % (indent, bare)
            lines.append(line)
        try:
            return ast.parse("\n".join(lines), name)
        except SyntaxError:
            raise error from None


class DisplayModules:
    """Stands for IPython's modules that show things, where cells run without it."""

    CLASSES = (
        ("HTML", "text/html"),
        ("Markdown", "text/markdown"),
        ("Latex", "text/latex"),
        ("SVG", "image/svg+xml"),
        ("Image", "image/png"),
        ("JSON", "application/json"),
        ("Javascript", "application/javascript"),
    )

    def __init__(self, cells):
        self.cells = cells

    def find_spec(self, name, path=None, target=None):
        if name in ("IPython", "IPython.display"):
            return importlib.machinery.ModuleSpec(name, self, is_package=name == "IPython")
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        if module.__name__ == "IPython":
            # matplotlib asks whether there is a shell.
            module.version_info = (8, 12, 0)
            module.get_ipython = lambda: None
            return
        module.display = self.cells.display
        module.clear_output = lambda wait=False: None
        names = dict(METHODS)
        for name, kind in self.CLASSES:
            members = {
                "__init__": set_data, names[kind]: get_data,
                "__module__": "IPython.core.display",
            }
            setattr(module, name, type(name, (), members))


def set_data(self, data=None, filename=None, **_):
    if data is None and filename is not None:
        with open(filename, "rb") as file:
            data = file.read()
    self.data = data


def get_data(self):
    return self.data
