"""Judge0's clients from the package index against Cove.

Needs BASE (http://host:port/compat/judge0) and TOKEN in the environment. Ends with 0 and "ok" when
everything was as it should be.
"""

import asyncio
import os
import sys

import judge0
import judge0_client
from judge0 import Filesystem, LanguageAlias, Status
from judge0.filesystem import File
from judge0_client.models.multi_file_submission import MultiFileSubmission
from judge0_client.models.single_file_submission import SingleFileSubmission

BASE, TOKEN = os.environ["BASE"], os.environ["TOKEN"]


def equal(seen, expected, what=""):
    assert seen == expected, f"{what}: {seen!r} is not {expected!r}"


def official():
    """The official one: it reads every field, checks the configuration and sends base64."""
    client = judge0.Client(BASE, {"X-Auth-Token": TOKEN})
    equal(client.version, "1.13.1")
    assert client.is_language_supported(LanguageAlias.PYTHON)

    submission = judge0.run(client=client, source_code="print(input() + '€')", language=71, stdin="a", expected_output="a€")
    equal((submission.status, submission.stdout), (Status.ACCEPTED, "a€\n"))
    assert submission.time is not None and submission.memory > 0 and submission.finished_at

    cases = [judge0.TestCase("1", "2"), judge0.TestCase("2", "5"), judge0.TestCase("x", "")]
    submissions = judge0.run(client=client, source_code="print(int(input()) * 2)", language=LanguageAlias.PYTHON, test_cases=cases)
    statuses = [s.status for s in submissions]
    equal(statuses, [Status.ACCEPTED, Status.WRONG_ANSWER, Status.RUNTIME_ERROR_NZEC])

    # The client takes texts that could be base64 for base64; this one could not.
    files = Filesystem(content=[
        File(name="compile", content="echo built: > made"),
        File(name="run", content="cat made; cat data/x; read line; echo $line; exit 0"),
        File(name="data/x", content="y\n"),
    ])
    submission = judge0.Submission(
        language=LanguageAlias.MULTI_FILE, additional_files=files, stdin="in\n", expected_output="built:\ny\nin")
    submission.source_code = ""
    submission = judge0.run(client=client, submissions=submission)
    equal((submission.status, submission.stdout), (Status.ACCEPTED, "built:\ny\nin\n"), submission)

    submission = judge0.run(client=client, source_code="int main(){ x }", language=LanguageAlias.C)
    equal(submission.status, Status.COMPILATION_ERROR)
    assert "x" in submission.compile_output


async def other():
    async with judge0_client.Judge0Client(BASE, auth_token=TOKEN) as client:
        about = await client.get_about()
        equal(about.version, "1.13.1")
        workers = await client.get_workers()
        assert workers[0].available >= 1, workers
        assert "Cove" in await client.get_isolate()
        assert "Apache" in await client.get_license()

        async def ended(submission):
            created = await client.create_submission(submission)
            for _ in range(2000):
                detail = await client.get_submission(created.token)
                if detail.status.id > 2:
                    return detail
                await asyncio.sleep(0.02)
            raise AssertionError(f"{created.token} does not end: {detail}")

        detail = await ended(SingleFileSubmission(
            source_code="import helper, sys; print(helper.x, sys.argv[1:])", language_id=71,
            command_line_arguments="a 'b c'", memory_limit=128000.0,
            additional_files={"helper.py": "x = 7"}))
        equal((detail.status.id, detail.stdout), (3, "7 ['a', 'b c']\n"), detail)
        detail = await ended(MultiFileSubmission(additional_files={"compile": "exit 3", "run": "echo no"}))
        equal((detail.status.id, detail.stdout), (6, None), detail)


def main():
    for test in [official, lambda: asyncio.run(other())]:
        test()
    print("ok")


if __name__ == "__main__":
    sys.exit(main())
