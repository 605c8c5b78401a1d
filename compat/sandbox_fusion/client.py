"""SandboxFusion's client from the package index against Cove.

Needs BASE (http://host:port/compat/sandbox-fusion) and TOKEN in the environment. Ends with 0 and "ok"
when everything was as it should be.
"""

import asyncio
import base64
import os

import sandbox_fusion as fusion

# The client has no word for a token, but an address may have a user and a password.
ENDPOINT = os.environ["BASE"].replace("://", f"://cove:{os.environ['TOKEN']}@", 1)
fusion.set_endpoint(ENDPOINT)
# Of the client's own kinds of failure, only those that its server means are retried.
ONCE = {"max_attempts": 1}
MAPPING = fusion.SummaryMapping(
    Success="good", Failed="bad", CompileFailed="no compile", CompileTimeout="slow compile", RunTimeout="slow"
)


def code(language, source, **more):
    return fusion.RunCodeRequest(language=language, code=source, **more)


def equal(seen, expected, what=""):
    assert seen == expected, f"{what}: {seen!r} is not {expected!r}"


def programs():
    cpp = "#include <iostream>\n#include <cassert>\nint main() { %s }"
    java = "public class Main { public static void main(String[] a) { %s } }"
    for request, summary, stdout in [
        (code("python", "print(int(input()) * 2)", stdin="21"), "good", "42\n"),
        (code("python", "assert 1 == 2"), "bad", ""),
        (code("python", "int a = 1"), "bad", ""),
        (code("python", "import time; time.sleep(60)", run_timeout=0.2), "slow", ""),
        (code("bash", "echo hi; exit 3"), "bad", "hi\n"),
        (code("nodejs", "console.log(1 + 1)"), "good", "2\n"),
        (code("typescript", "const a: number = 3; console.log(a)"), "good", "3\n"),
        (code("typescript", "const a: = 3"), "bad", ""),
        (code("cpp", cpp % 'std::cout << "c++";', compile_timeout=60), "good", "c++"),
        (code("cpp", cpp % "assert(1 == 2);", compile_timeout=60), "bad", ""),
        (code("cpp", cpp % "nonsense;", compile_timeout=60), "no compile", None),
        (code("java", java % 'System.out.println("j");', compile_timeout=60, run_timeout=60), "good", "j\n"),
        (code("java", java % "assert 1 == 2;", compile_timeout=60, run_timeout=60), "bad", ""),
        (code("rust", "fn main() { assert_eq!(1, 1); print!(\"r\"); }", compile_timeout=60), "good", "r"),
        (code("go", 'package main\nfunc main() { print("to stderr") }', compile_timeout=110), "good", ""),
    ]:
        result = fusion.run_code(request, **ONCE)
        equal(fusion.summary_run_code_result(result, MAPPING), summary, result)
        equal(result.run_result.stdout if result.run_result else None, stdout, result)
    assert result.compile_result.execution_time > 0 and result.run_result.stderr == "to stderr", result


def files_go_in_and_come_out():
    given = {"dir/in.txt": base64.b64encode(b"\xffin").decode(), "absent": None}
    source = "open('out/b', 'wb').write(open('dir/in.txt', 'rb').read()[::-1])"
    request = code("python", "import os; os.mkdir('out');" + source, files=given, fetch_files=["out/b", "nothing"])
    result = fusion.run_code(request, **ONCE)
    equal({name: base64.b64decode(data) for name, data in result.files.items()}, {"out/b": b"ni\xff"}, result)


def what_is_not_run_is_said():
    for request, expected in [
        (code("cuda", ""), "needs a GPU"),
        (code("ruby", ""), "`ruby` is not run by this server"),
        (code("python", "", fetch_files=["/etc/passwd"]), "outside of the program's directory"),
    ]:
        try:
            fusion.run_code(request, **ONCE)
        except Exception as error:
            assert "Sandbox responded with error" in str(error) and expected in str(error), error
        else:
            raise AssertionError(request)


def notebooks():
    cells = ["a = 'hello'", "a", "print(a)", "import sys; sys.stderr.write('e')", "assert False", "print(a, 2)"]
    request = fusion.RunJupyterRequest(cells=cells, fetch_files=["a.bin"], files={"in": "YQ=="})
    result = fusion.run_jupyter(request, **ONCE)
    equal((result.status, result.driver.status), ("Success", "Finished"), result)
    equal([cell.stdout for cell in result.cells], ["", "", "hello\n", "", "", "hello 2\n"])
    equal(result.cells[1].display, [{"text/plain": "'hello'"}])
    # The number of characters that were written is a value too.
    equal((result.cells[3].stderr, result.cells[3].display), ("e", [{"text/plain": "1"}]))
    equal(result.cells[4].error[0]["ename"], "AssertionError")
    equal(result.files, {})


async def at_the_same_time():
    async def one(number):
        request = code("python", f"print({number} ** 2)", run_timeout=60)
        result = await fusion.run_code_async(request, max_attempts=1)
        equal(result.run_result.stdout, f"{number**2}\n", result)

    await asyncio.gather(*(one(number) for number in range(64)))
    result = await fusion.run_jupyter_async(fusion.RunJupyterRequest(cells=["1"]), max_attempts=1)
    equal(result.cells[0].display, [{"text/plain": "1"}])
    results = fusion.run_concurrent(fusion.run_code, args=[[code("bash", f"echo {n}")] for n in range(30)], concurrency=30)
    equal([result.run_result.stdout for result in results], [f"{n}\n" for n in range(30)])


def main():
    for test in [programs, files_go_in_and_come_out, what_is_not_run_is_said, notebooks]:
        print(test.__name__, flush=True)
        test()
    asyncio.run(at_the_same_time())
    print("ok")


if __name__ == "__main__":
    main()
