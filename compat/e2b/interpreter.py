"""E2B's Python SDK for the code interpreter, unmodified, against Cove, as a table of named checks.

Needs E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY in the environment. Prints one line of JSON for
each check, {name, ok, detail}, and ends with 1 if one failed.
"""

import asyncio
import sys
import threading
import time

from e2b import InvalidArgumentException, NotFoundException, TimeoutException
from e2b_code_interpreter import AsyncSandbox, Context, Sandbox
from e2b_code_interpreter.charts import (
    BarChart, BoxAndWhiskerChart, LineChart, PieChart, ScatterChart, SuperChart,
)

from checks import check, run

FIGURE = "import matplotlib.pyplot as plt\n"


def result(sandbox, code, **options):
    execution = sandbox.run_code(code, **options)
    assert execution.error is None, execution.error
    return execution


def chart(sandbox, code):
    first = result(sandbox, FIGURE + code + "\nplt.show()").results[0]
    assert first.png and first.text and not first.extra, first
    return first.chart


@check
def values_and_state(sandbox):
    assert result(sandbox, "x = 20; x").text == "20"
    execution = result(sandbox, "x + 1")
    assert execution.text == "21" and execution.results[0].is_main_result
    assert result(sandbox, "'a' * 3").text == "aaa"
    assert result(sandbox, "x;").results == []


@check
def output_as_it_comes(sandbox):
    heard = []
    execution = sandbox.run_code(
        "import sys\nprint('out')\nprint('err', file=sys.stderr)",
        on_stdout=lambda message: heard.append((message.line, message.error)),
        on_stderr=lambda message: heard.append((message.line, message.error)),
    )
    assert ("out\n", False) in heard and ("err\n", True) in heard, heard
    assert execution.logs.stdout == ["out\n"] and execution.logs.stderr == ["err\n"]


@check
def output_of_child_processes(sandbox):
    assert "".join(result(sandbox, "!echo from a shell; pwd").logs.stdout) == (
        "from a shell\n/home/user\n")
    code = "import subprocess; subprocess.run(['echo', 'child']).returncode"
    execution = result(sandbox, code)
    assert execution.logs.stdout == ["child\n"] and execution.text == "0"


@check
def errors(sandbox):
    execution = sandbox.run_code("def f(): return missing\nf()")
    assert execution.error.name == "NameError"
    assert execution.error.value == "name 'missing' is not defined"
    assert "f()" in execution.error.traceback and "\x1b" not in execution.error.traceback
    assert sandbox.run_code("def f(:").error.name == "SyntaxError"


@check
def magics_and_display(sandbox):
    assert result(sandbox, "%env HOME").text == "/home/user"
    shown = result(sandbox, "from IPython.display import HTML, display\ndisplay(HTML('<b>x</b>'))")
    assert shown.results[0].html == "<b>x</b>" and not shown.results[0].is_main_result
    assert result(sandbox, "await __import__('asyncio').sleep(0, 'waited')").text == "waited"


@check
def data_frames(sandbox):
    first = result(sandbox, "import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': [0.5, None]})")
    first = first.results[0]
    assert "<table" in first.html and first.data == {"a": [1, 2], "b": [0.5, None]}, first.data


@check
def json_of_lists_and_dicts(sandbox):
    assert result(sandbox, "{'a': [1, float('nan')]}").results[0].json == {"a": [1, None]}


@check
def pictures(sandbox):
    code = "from PIL import Image\nimage = Image.new('RGB', (4, 4), 'red')\n"
    assert result(sandbox, code + "image").results[0].png
    assert result(sandbox, code + "image.show()").results[0].png
    assert result(sandbox, code + "image.save('x.png')").results[0].png


@check
def line_chart(sandbox):
    found = chart(sandbox, "plt.plot([1, 2], [3, 4], label='l')\nplt.xlabel('Time (s)')")
    assert isinstance(found, LineChart) and found.x_unit == "s"
    assert found.elements[0].label == "l" and found.elements[0].points == [(1.0, 3.0), (2.0, 4.0)]


@check
def scatter_chart(sandbox):
    found = chart(sandbox, "plt.scatter([1, 2], [3, 4], label='s')\nplt.yscale('log')")
    assert isinstance(found, ScatterChart) and found.y_scale == "log"
    assert found.elements[0].points == [(1.0, 3.0), (2.0, 4.0)]


@check
def bar_chart(sandbox):
    found = chart(sandbox, "plt.bar(['a', 'b'], [3, 4], label='g')\nplt.title('t')")
    assert isinstance(found, BarChart) and found.title == "t"
    assert [(it.label, it.group, it.value) for it in found.elements] == [
        ("a", "g", 3), ("b", "g", 4)]


@check
def pie_chart(sandbox):
    found = chart(sandbox, "plt.pie([90, 10], labels=['a', 'b'])")
    assert isinstance(found, PieChart)
    assert [(it.label, it.angle) for it in found.elements] == [("a", 324), ("b", 36)]


@check
def box_chart(sandbox):
    found = chart(sandbox, "plt.boxplot([[1, 2, 3, 4, 100]], labels=['a'])")
    assert isinstance(found, BoxAndWhiskerChart)
    box = found.elements[0]
    assert (box.label, box.median, box.outliers) == ("a", 3, [100]), box


@check
def several_charts(sandbox):
    found = chart(sandbox, "_, axes = plt.subplots(1, 2)\naxes[0].plot([1])\naxes[1].bar([1], [2])")
    assert isinstance(found, SuperChart)
    assert [type(it) for it in found.elements] == [LineChart, BarChart]


@check
def figures_that_are_not_shown(sandbox):
    execution = result(sandbox, FIGURE + "figure = plt.figure(); plt.plot([1])\nNone")
    assert [bool(it.png) for it in execution.results] == [True]


@check
def other_languages(sandbox):
    assert result(sandbox, "const a = 1; a + 1", language="js").text == "2"
    assert result(sandbox, "const a = 2; await Promise.resolve(a)", language="js").text == "2"
    assert result(sandbox, "import { sep } from 'path'\nsep", language="js").text == "/"
    execution = sandbox.run_code("null.x", language="js")
    assert execution.error.name == "TypeError"
    code = "interface A { x: number }\nconst it: A = { x: 1 }; it.x"
    assert result(sandbox, code, language="ts").text == "1"
    result(sandbox, "KEPT=1", language="bash")
    assert result(sandbox, "echo $KEPT", language="bash").logs.stdout == ["1\n"]
    try:
        sandbox.run_code("1", language="cobol")
        raise AssertionError("a language that is not there")
    except Exception as error:
        assert "cobol" in str(error), error


@check
def environment_of_one_execution(sandbox):
    for language, code in (
        ("python", "import os; os.getenv('FOO', 'none')"),
        ("js", "process.env.FOO || 'none'"),
    ):
        assert result(sandbox, code, language=language, envs={"FOO": "bar"}).text == "bar"
        assert result(sandbox, code, language=language).text == "none"
    bash = "echo ${FOO:-none} ${OWN}"
    assert result(sandbox, bash, language="bash", envs={"FOO": "b'r"}).logs.stdout == ["b'r yes\n"]
    assert result(sandbox, bash, language="bash").logs.stdout == ["none yes\n"]
    assert result(sandbox, "import os; os.environ['OWN']").text == "yes"


@check
def contexts(sandbox):
    languages = [context.language for context in sandbox.list_code_contexts()]
    assert languages[:2] == ["python", "javascript"], languages
    context = sandbox.create_code_context(cwd="/tmp")
    assert sandbox.list_code_contexts()[-1].id == context.id
    assert result(sandbox, "import os; y = 1; os.getcwd()", context=context).text == "/tmp"
    assert sandbox.run_code("y").error.name == "NameError"
    sandbox.restart_code_context(context)
    assert sandbox.run_code("y", context=context).error.name == "NameError"
    sandbox.remove_code_context(context)
    for act in (
        lambda: sandbox.run_code("1", context=context),
        lambda: sandbox.restart_code_context(context),
        lambda: sandbox.remove_code_context(Context("ctx_none", "python", "/")),
    ):
        try:
            act()
            raise AssertionError("a context that is not there")
        except NotFoundException:
            pass
    try:
        sandbox.run_code("1", context=context, language="python")
        raise AssertionError("a context and a language")
    except InvalidArgumentException:
        pass


@check
def copies_have_random_numbers_of_their_own(sandbox):
    code = "import random, numpy; (random.random(), numpy.random.rand())"
    contexts = [sandbox.create_code_context() for _ in range(3)]
    drawn = [result(sandbox, code, context=context).text for context in contexts]
    assert len({part for text in drawn for part in text.split(",")}) == 6, drawn
    product = "import numpy; a = numpy.ones((256, 256)); " \
        "round(float((a @ a)[0, 0] + numpy.linalg.svd(a)[1][0]))"
    for context in contexts:
        assert result(sandbox, product, context=context).text == "512"
        sandbox.remove_code_context(context)


@check
def a_client_that_leaves_interrupts(sandbox):
    try:
        sandbox.run_code("kept = 1\nimport time; time.sleep(300)", timeout=1)
        raise AssertionError("it has waited")
    except TimeoutException:
        pass
    assert result(sandbox, "1 + kept", timeout=20).text == "2"


@check
def executions_wait_for_each_other(sandbox):
    texts = []

    def run(code):
        texts.append(sandbox.run_code(code).text)

    threads = [threading.Thread(target=run, args=("import time; time.sleep(0.2); 1",))
               for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["1"] * 3


@check
def an_asynchronous_client(_sandbox):
    async def run():
        sandbox = await AsyncSandbox.create(timeout=60)
        try:
            return (await sandbox.run_code("1 + 1")).text
        finally:
            await sandbox.kill()

    assert asyncio.run(run()) == "2"


@check
def a_sandbox_that_is_killed(_sandbox):
    sandbox = Sandbox.create(timeout=60)
    sandbox.run_code("1")
    timer = threading.Timer(1, sandbox.kill)
    timer.start()
    try:
        sandbox.run_code("import time; time.sleep(300)", timeout=60)
        raise AssertionError("it has gone on")
    except TimeoutException as error:
        assert "sandbox was killed" in str(error), error
    finally:
        timer.join()


@check
def private_traffic(_sandbox):
    sandbox = Sandbox.create(timeout=60, network={"allow_public_traffic": False})
    try:
        assert result(sandbox, "1").text == "1"
        assert sandbox.list_code_contexts()
    finally:
        sandbox.kill()


@check
def another_template_has_it_as_well(_sandbox):
    sandbox = Sandbox.create("base", timeout=60)
    try:
        assert result(sandbox, "1 + 1").text == "2"
    finally:
        sandbox.kill()


def main():
    sandbox = Sandbox.create(timeout=300, envs={"OWN": "yes"})
    try:
        held = run(sandbox)
    finally:
        sandbox.kill()
    sys.exit(0 if held else 1)


main()
