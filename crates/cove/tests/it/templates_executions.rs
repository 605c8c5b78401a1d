//! Executions that start from a template: its files, their protection from changes, its owner.

use serde_json::{Value, json};
use testkit::{Client, Request, Server};

use crate::asynchronous::{assert_error, ended, id, post, socket, submit, submit_all};
use crate::sessions_support::{config, ok, with};
use crate::support::{COVE, beside_others};
use crate::templates_mirrors::Mirrors;

/// Builds a template; the build must succeed.
fn ready(client: &Client, name: &str, steps: &Value) -> Value {
    let request = json!({"name": name, "steps": steps});
    let build = ok(&post(client, "/v1/templates?wait=true", &request));
    assert_eq!(build["status"], "ready", "{build}");
    build
}

fn run(command: &str) -> Value {
    json!({"type": "run", "command": command})
}

/// Runs a program that must succeed, and returns the whole response.
fn executed(client: &Client, request: &Value) -> Value {
    let execution = ok(&post(client, "/v1/executions?wait=true", request));
    assert_eq!(execution["verdict"], "OK", "{execution}");
    execution
}

fn stdout_of(execution: &Value) -> &str {
    execution["stdout"].as_str().unwrap()
}

fn python(template: &str, source: &str) -> Value {
    json!({"language": "python", "template": template, "source": source})
}

fn delete(client: &Client, name: &str) {
    let response = client.send(&Request::new("DELETE", &format!("/v1/templates/{name}")));
    assert_eq!(response.status, 204, "{}", response.text());
}

#[test]
fn executions_start_with_the_packages_and_files_of_a_template() {
    let _guard = beside_others();
    let mirrors = Mirrors::start();
    let server = mirrors.serve();
    let client = server.client();
    let build = ready(
        &client,
        "science",
        &json!([
            {"type": "env", "values": {"GREETING": "hello", "OWN": "template"}},
            {"type": "workdir", "path": "/workspace/app"},
            {"type": "pip_install", "packages": ["greetings"]},
            run("echo of the template > data.txt; echo '#define NUMBER 42' > number.h"),
        ]),
    );
    let source = "import greetings, os, subprocess\n\
        greetings.main()\n\
        print(subprocess.run('greet', capture_output=True, text=True).stdout, end='')\n\
        print(open('data.txt').read(), end='')\n\
        open('data.txt', 'w').write('changed')\n\
        open('/home/user/.local/new', 'w').write('new')\n\
        os.remove('number.h')\n\
        open('made.txt', 'w').write(open('data.txt').read())\n\
        print(os.getcwd(), os.environ['GREETING'], os.environ['OWN'], os.listdir('.'))\n";
    let id_of = build["template"].as_str().unwrap();
    let by_build = format!("{id_of}:{}", build["id"].as_str().unwrap());
    // Every run has the same result, because each has its own copy of the files.
    for reference in ["science", "science:default", id_of, &by_build] {
        let request = with(
            python(reference, source),
            &json!({"env": {"OWN": "request"}, "outputs": ["made.txt", "data.txt"]}),
        );
        let execution = executed(&client, &request);
        assert_eq!(execution["mode"], "fresh");
        let expected = "hello from a wheel\nhello from a wheel\nof the template\n\
                        /workspace/app hello request ";
        assert!(stdout_of(&execution).starts_with(expected), "{execution}");
        assert_eq!(execution["files"][0]["content"], "changed", "{execution}");
        assert_eq!(execution["files"][1]["content"], "changed", "{execution}");
    }
    // A file of the request replaces a file of the template.
    let request = json!({
        "template": "science", "argv": ["/bin/cat", "data.txt"],
        "files": [{"name": "data.txt", "content": "of the run\n"}],
    });
    assert_eq!(stdout_of(&executed(&client, &request)), "of the run\n");
    // Compilers find the files as well, and a cached compilation is used for the same files only.
    let c = json!({
        "language": "c", "template": "science",
        "source": "#include <stdio.h>\n#include \"number.h\"\nint main(){printf(\"%d\\n\", NUMBER);}",
    });
    for mode in ["fresh", "cached"] {
        let execution = executed(&client, &c);
        assert_eq!((stdout_of(&execution), &execution["mode"]), ("42\n", &json!(mode)));
    }
    ready(&client, "other", &json!([run("echo '#define NUMBER 7' > number.h")]));
    let other = executed(&client, &with(c, &json!({"template": "other"})));
    assert_eq!((stdout_of(&other), &other["mode"]), ("7\n", &json!("fresh")));
    // Test cases and their checker use the template, too.
    let checker = "import greetings, sys\nsys.exit(open(sys.argv[2]).read() != '3\\n')\n";
    let request = with(
        python("science", "import greetings\nprint(sum(map(int, input().split())))"),
        &json!({
            "tests": [{"stdin": "1 2\n"}, {"stdin": "3 0\n"}],
            "comparison": {"mode": "checker", "language": "python", "source": checker},
        }),
    );
    let judged = executed(&client, &request);
    assert_eq!(judged["tests"].as_array().unwrap().len(), 2, "{judged}");
    // Asynchronous executions, in a batch and individually.
    let greeting = python("science", "import greetings; greetings.main()");
    let mut ids = submit_all(&client, &[greeting.clone(), greeting.clone()]);
    ids.push(submit(&client, &greeting));
    for id in ids {
        let record = ended(&client, &id);
        assert_eq!(stdout_of(&record["result"]), "hello from a wheel\n", "{record}");
    }
    // The command line has an option for a template, which requires a server.
    let scratch = testkit::Scratch::new();
    let file = scratch.file("hello.py", "import greetings; greetings.main()");
    let file = file.to_str().unwrap();
    let url = format!("http://{}", server.client().address());
    let mut command = server.command("run");
    let output = command.args(["--server", &url, "--template", "science", file]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello from a wheel\n", "{output:?}");
    let output = server.command("run").args(["--template", "science", file]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && errors.contains("--server"), "{errors}");
}

/// Starts a server with small disks, whose builds have no network.
fn serve(settings: &str) -> Server {
    let table = format!("{settings}\n[sessions.templates]\ndisk_bytes = 67108864");
    Server::start_with(COVE, &[], Some(&config(&table)))
}

#[test]
fn a_template_is_used_by_its_tenant_and_only_when_it_is_ready() {
    let _guard = beside_others();
    let server = serve("");
    let client = server.client();
    ready(&client, "web", &json!([run("echo mine > secret.txt")]));
    let failed = json!({"name": "broken", "steps": [run("false")]});
    let failed = ok(&post(&client, "/v1/templates?wait=true", &failed));
    let unfinished =
        format!("{}:{}", failed["template"].as_str().unwrap(), failed["id"].as_str().unwrap());
    let stranger = server.other_client("stranger", &[]);
    let narrow = server.other_client("narrow", &["--scope", "executions"]);
    let cat = |template: &str| json!({"template": template, "argv": ["/bin/cat", "secret.txt"]});
    assert_eq!(stdout_of(&executed(&client, &cat("web"))), "mine\n");
    for (who, template, status, code) in [
        (&client, "none", 404, "not_found"),
        (&client, "web:none", 404, "not_found"),
        (&client, "broken", 404, "not_found"),
        (&client, &*unfinished, 409, "conflict"),
        (&client, "", 400, "invalid_request"),
        (&client, "web@stranger", 400, "invalid_request"),
        (&stranger, "web", 404, "not_found"),
        (&narrow, "web", 403, "forbidden"),
    ] {
        for target in ["/v1/executions?wait=true", "/v1/executions"] {
            let refused = post(who, target, &cat(template));
            assert_error(&refused, status, code, Some("template"));
        }
        let batch = post(who, "/v1/executions/batch", &json!({"executions": [cat(template)]}));
        // The rights to a template are checked before the rest of the batch.
        let field = match status {
            400 | 403 => "template",
            _ => "executions[0].template",
        };
        assert_error(&batch, status, code, Some(field));
    }
    let refused = post(&client, "/v1/executions?wait=true", &cat("none")).json();
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("unknown template `none`"), "{message}");
}

#[test]
fn a_template_that_goes_away_ends_what_waits_for_it_and_nothing_that_runs() {
    let _guard = beside_others();
    let server = serve("");
    let client = server.client();
    let operator = server.other_client("operator", &["--operator"]);
    ready(&client, "web", &json!([run("echo kept > data.txt")]));
    let layers = || std::fs::read_dir(server.data_dir().join("sessions/layers")).unwrap().count();
    assert_eq!(layers(), 1);
    // A running program still reads the layer after its template was deleted.
    let source = "import time\nprint('started', flush=True)\ntime.sleep(1)\n\
        print(open('data.txt').read(), end='')";
    let running = submit(&client, &python("web", source));
    let mut events = socket(&client, &running);
    while !events.json().to_string().contains("started") {}
    ok(&post(&operator, "/v1/queue/pause", &json!({})));
    let waiting = submit(&client, &python("web", "print(open('data.txt').read())"));
    delete(&client, "web");
    assert_eq!(layers(), 0);
    let record = ended(&client, &running);
    assert_eq!(stdout_of(&record["result"]), "started\nkept\n", "{record}");
    ok(&post(&operator, "/v1/queue/resume", &json!({})));
    let record = ended(&client, &waiting);
    assert_eq!(record["state"], "cancelled", "{record}");
    let message = record["message"].as_str().unwrap();
    assert!(message.contains("template: unknown template `web`"), "{message}");
    assert_eq!(id(&record), waiting);
}

/// Programs of a tenant have created a template's content, so it is not trusted.
#[test]
fn nothing_in_a_template_leads_out_of_the_sandbox() {
    let _guard = beside_others();
    let server = serve("");
    let client = server.client();
    ready(
        &client,
        "traps",
        &json!([
            {"type": "workdir", "path": "/workspace/app"},
            run("ln -s /etc link; mkdir main.py; touch file"),
        ]),
    );
    let with_file = |name: &str| {
        json!({
            "template": "traps", "argv": ["/bin/true"],
            "files": [{"name": name, "content": "x"}],
        })
    };
    for name in ["link/x", "main.py", "file/y"] {
        let refused = post(&client, "/v1/executions?wait=true", &with_file(name));
        assert_error(&refused, 409, "conflict", Some("template"));
    }
    assert_eq!(executed(&client, &with_file("link"))["stdout"], "");
    // A working directory that is a link to another directory is rejected.
    let elsewhere = json!([
        {"type": "workdir", "path": "/workspace/app"},
        run("cd ..; rmdir app; ln -s /etc app"),
    ]);
    ready(&client, "elsewhere", &elsewhere);
    let request = json!({"template": "elsewhere", "argv": ["/bin/pwd"]});
    let refused = post(&client, "/v1/executions?wait=true", &request);
    assert_error(&refused, 409, "conflict", Some("template"));
    // Layers and their paths are not visible, and written data count towards the disk limit.
    let code = "import os\n\
        mounts = open('/proc/self/mountinfo').read()\n\
        print([word for word in ('layers', 'loop', '.img') if word in mounts])\n\
        print(os.stat('/workspace').st_uid == os.getuid(), os.listdir('/run'))\n\
        try:\n    open('big', 'wb').write(bytes(1 << 25))\n\
        except OSError as error:\n    print(error.strerror)\n";
    // The template contains a directory `main.py`.
    let request = json!({
        "language": "python", "template": "traps", "limits": {"disk_bytes": 1 << 24},
        "files": [{"name": "look.py", "content": code}],
    });
    let execution = executed(&client, &request);
    assert_eq!(stdout_of(&execution), "[]\nTrue []\nNo space left on device\n");
}

#[test]
fn a_server_without_sessions_says_why_it_has_no_templates() {
    let _guard = beside_others();
    let mut server = serve("resident_max = 0");
    server.expect_log("sessions are not available");
    let request = json!({"template": "web", "argv": ["/bin/true"]});
    let refused = post(&server.client(), "/v1/executions?wait=true", &request);
    assert_error(&refused, 503, "overloaded", Some("template"));
    let text = refused.text();
    assert!(text.contains("sessions are not available on this server"), "{text}");
}
