"""E2B's Python SDK, unmodified, against Cove: its builder of templates, as a table of named checks.

Needs E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY in the environment, and in E2B_GIT_URL a repository
that builds reach; the server needs mirrors with the packages `greetings` and `shouter`. Arguments are
parts of names: only those checks are done. Prints one line of JSON for each check, {name, ok, detail},
and ends with 1 if one failed.
"""

import asyncio
import os
import sys
import tempfile
import time
import traceback
import uuid

from e2b import AsyncSandbox, AsyncTemplate, Sandbox, Template, wait_for_port
from e2b.exceptions import BuildException, NotFoundException, SandboxException

from checks import check, equal, run

DEADLINE = 60


def fails(action, kind, *parts):
    try:
        action()
    except kind as error:
        for part in parts:
            assert part in str(error), f"{part!r} is not in {str(error)!r}"
        return error
    raise AssertionError(f"no {kind.__name__}")


def name():
    return f"t-{uuid.uuid4().hex[:12]}"


def build(template, wanted, **options):
    """A build, with the messages of its log."""
    lines = []
    info = Template.build(template, wanted, on_build_logs=lambda line: lines.append(line.message), **options)
    return info, lines


def out(sandbox, command):
    return sandbox.commands.run(command).stdout


class context:
    """A directory with files to copy."""

    def __enter__(self):
        self.directory = tempfile.TemporaryDirectory()
        os.makedirs(f"{self.directory.name}/site/deep")
        for path, text in [("site/index.html", "<p>hi</p>\n"), ("site/deep/b.txt", "b\n"), ("one.txt", "1\n")]:
            with open(f"{self.directory.name}/{path}", "w") as file:
                file.write(text)
        os.symlink("one.txt", f"{self.directory.name}/link.txt")
        return self.directory.name

    def __exit__(self, *_):
        self.directory.cleanup()


@check
def a_template_is_built_with_logs_and_sandboxes_start_from_it():
    with context() as files:
        template = (
            Template(file_context_path=files)
            .from_base_image()
            .set_workdir("/home/user/app")
            .copy("site", "site/")
            .copy(["*.txt"], "/home/user/texts/", mode=0o640)
            .set_envs({"GREETING": "hello"})
            .set_envs({"LOUD": "$GREETING!"})
            .run_cmd("echo built in $(pwd) with $LOUD; echo $LOUD > made.txt")
            .make_dir("/home/user/data")
            .set_start_cmd("cd site && exec python3 -m http.server 8000", wait_for_port(8000))
        )
        wanted = name()
        info, lines = build(template, wanted)
        assert any("built in /home/user/app with hello!" in line for line in lines), lines
        with Sandbox.create(wanted, timeout=60) as sandbox:
            equal(out(sandbox, "pwd; cat made.txt site/deep/b.txt; echo $GREETING"), "/home/user/app\nhello!\nb\nhello\n")
            equal(out(sandbox, "cd ~/texts; stat -c '%n %a' one.txt; readlink link.txt"), "one.txt 640\none.txt\n")
            equal(out(sandbox, "curl -s http://127.0.0.1:8000/index.html"), "<p>hi</p>\n")
            equal(sandbox.get_info().template_id, wanted)
        # The same again takes every layer from before, and uploads nothing.
        again, lines = build(template, wanted)
        assert again.build_id != info.build_id
        assert any("CACHED" in line for line in lines) and any("already cached" in line for line in lines), lines
        _, lines = build(template, wanted, skip_cache=True)
        assert not any("CACHED" in line for line in lines), lines


@check
def a_build_that_fails_raises_with_its_step_and_points_at_its_line():
    template = Template().from_base_image().run_cmd("echo fine").run_cmd("echo why; exit 3")
    error = fails(lambda: build(template, name()), BuildException, "step 2", "exit 3", "exited with code 3", "why")
    lines = [frame.line for frame in traceback.extract_tb(error.__traceback__)]
    assert any("exit 3" in line for line in lines), lines


@check
def what_there_is_not_is_refused_with_the_reason():
    base = lambda: Template().from_base_image()
    for template, parts in [
        (Template().from_python_image("3.12"), ["python:3.12", "images are not pulled here"]),
        (Template().from_image("x/y", username="u", password="p"), ["fromImageRegistry"]),
        (base().set_user("root"), ["root", "one user"]),
        (base().run_cmd("mkdir /data", user="root"), ["root", "one user"]),
        (base().apt_install("vim"), ["apt-get", "needs root"]),
        (base().set_workdir("/app"), ["/app", "is not kept"]),
        (Template().from_template("nowhere"), ["nowhere"]),
    ]:
        fails(lambda: build(template, name()), BuildException, *parts)
    fails(lambda: Sandbox.create("nowhere"), (NotFoundException, SandboxException), "nowhere")


@check
def packages_come_from_the_mirrors():
    template = (
        Template()
        .from_base_image()
        .pip_install("greetings")
        .npm_install("shouter", g=True)
        .git_clone(os.environ["E2B_GIT_URL"], "/home/user/notes")
    )
    wanted = name()
    build(template, wanted)
    with Sandbox.create(wanted, timeout=60) as sandbox:
        equal(out(sandbox, "greet; shout; cat notes/note.txt"), "hello from a wheel\nHELLO FROM A TARBALL\nfrom a repository\n")
        equal(out(sandbox, "python3 -c 'import greetings; greetings.main()'"), "hello from a wheel\n")
    # What is not there is said in pip's own words.
    fails(lambda: build(Template().from_base_image().pip_install("nothing-of-that-name"), name()), BuildException, "nothing-of-that-name", "No matching distribution")


@check
def names_tags_and_templates_over_templates():
    wanted = name()
    equal(Template.exists(wanted), False)
    first, _ = build(Template().from_base_image().run_cmd("echo one > ~/v"), f"{wanted}:v1")
    equal(first.tags, ["v1"])
    equal(Template.exists(wanted), True)
    equal(Template.alias_exists(wanted), True)
    second, _ = build(Template().from_base_image().run_cmd("echo two > ~/v"), wanted, tags=["v2", "latest"])
    tagged = Template.assign_tags(f"{wanted}:v1", ["stable"])
    equal(tagged.build_id, first.build_id)
    found = {tag.tag: tag.build_id for tag in Template.get_tags(wanted)}
    equal(found, {"v1": first.build_id, "stable": first.build_id, "v2": second.build_id, "latest": second.build_id})
    Template.remove_tags(wanted, ["v1"])
    fails(lambda: Sandbox.create(f"{wanted}:v1"), (NotFoundException, SandboxException))
    above = name()
    build(Template().from_template(f"{wanted}:stable").run_cmd("cat ~/v > ~/copy"), above)
    for reference, expected in [(f"{wanted}:v2", "two\n"), (f"{wanted}:stable", "one\n"), (above, "one\n")]:
        with Sandbox.create(reference, timeout=60) as sandbox:
            equal(out(sandbox, "cat ~/v"), expected)


@check
def a_dockerfile_without_root_maps():
    with context() as files:
        dockerfile = "FROM e2bdev/base\nENV COLOR=blue\nWORKDIR /home/user/d\nCOPY one.txt .\nRUN cat one.txt > two.txt\n"
        wanted = name()
        build(Template(file_context_path=files).from_dockerfile(dockerfile), wanted)
        with Sandbox.create(wanted, timeout=60) as sandbox:
            equal(out(sandbox, "cat two.txt; echo $COLOR"), "1\nblue\n")
        refused = Template(file_context_path=files).from_dockerfile("FROM debian:12\nRUN true\n")
        fails(lambda: build(refused, name()), BuildException, "debian:12")


@check
def a_build_in_the_background_is_asked_for():
    info = Template.build_in_background(Template().from_base_image().run_cmd("echo slow; sleep 1"), name())
    end, status, seen = time.monotonic() + DEADLINE, None, []
    while time.monotonic() < end and (status is None or status.status in ("waiting", "building")):
        status = Template.get_build_status(info, logs_offset=len(seen))
        seen += [line.message for line in status.log_entries]
        time.sleep(0.1)
    equal(status.status.value, "ready")
    assert "slow" in seen, seen


@check
def the_asynchronous_builder():
    async def steps():
        wanted = name()
        await AsyncTemplate.build(AsyncTemplate().from_base_image().run_cmd("echo async > ~/a"), wanted)
        sandbox = await AsyncSandbox.create(wanted, timeout=60)
        try:
            equal((await sandbox.commands.run("cat ~/a")).stdout, "async\n")
        finally:
            await sandbox.kill()

    asyncio.run(steps())


if __name__ == "__main__":
    sys.exit(0 if run() else 1)
