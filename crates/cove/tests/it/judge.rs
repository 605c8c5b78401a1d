//! Features for judges: test cases with every comparison, checkers, interactors, and cached
//! compilations. Uses real compilers, real programs, and some hostile ones.

use serde_json::{Value, json};
use testkit::Client;

use crate::support::{beside_others, run, serve, serve_with};

/// Verdicts of all test cases, followed by that of the execution.
fn verdicts(answer: &Value) -> String {
    let empty = Vec::new();
    let tests = answer["tests"].as_array().unwrap_or(&empty).iter();
    let all = tests.chain([answer]).map(|outcome| outcome["verdict"].as_str().unwrap());
    all.collect::<Vec<_>>().join(" ")
}

fn check(client: &Client, request: &Value, expected: &str) -> Value {
    let answer = run(client, request);
    assert_eq!(verdicts(&answer), expected, "{request}: {answer}");
    answer
}

/// A Python program with test cases `(input, expected)`.
fn tested(source: &str, comparison: Value, tests: &[(&str, &str)]) -> Value {
    let tests = tests.iter().map(|(stdin, expected)| json!({"stdin": stdin, "expected": expected}));
    json!({"language": "python", "source": source, "comparison": comparison,
        "tests": tests.collect::<Vec<_>>()})
}

#[test]
fn answers_are_compared_as_asked() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let echo = "import sys; sys.stdout.write(sys.stdin.read())";
    let tests = [("a b\n", "a b\n"), ("a b \n\n", "a b"), ("a  b", "a b"), ("a 1.001", "a 1")];
    for (comparison, expected) in [
        (json!({"mode": "exact"}), "OK WA WA WA WA"),
        (json!({"mode": "trailing_space"}), "OK OK WA WA WA"),
        (json!({"mode": "tokens"}), "OK OK OK WA WA"),
        (json!({"mode": "float", "relative": 0.01}), "OK OK OK OK OK"),
    ] {
        check(&client, &tested(echo, comparison, &tests), expected);
    }
    // Bytes, more than are compared in one step.
    let source = "import sys; sys.stdout.buffer.write(b'\\xff' * 400000)";
    let expected =
        base64::Engine::encode(&base64::engine::general_purpose::STANDARD, vec![0xff_u8; 400_000]);
    let request = json!({"language": "python", "source": source, "limits": {"output_bytes": 500_000},
        "tests": [{"expected_base64": expected}, {"expected": "x"}]});
    check(&client, &request, "OK WA WA");
}

#[test]
fn test_cases_are_apart_and_each_has_its_verdict() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let source = "#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
        int main(void) {\n  char word[16] = \"\";\n  scanf(\"%15s\", word);\n\
        \x20 FILE *f = fopen(\"left\", \"r\");\n  if (f) { puts(\"left\"); return 0; }\n\
        \x20 fclose(fopen(\"left\", \"w\"));\n\
        \x20 if (word[0] == 'l') for (;;) {}\n  if (word[0] == 's') abort();\n\
        \x20 if (word[0] == 'f') for (;;) puts(\"flood\");\n  puts(word);\n  return word[0] == 'r';\n}\n";
    let test = |word: &str| json!({"name": word, "stdin": word, "expected": word});
    let mut request = json!({"language": "c", "source": source, "limits": {"cpu_ms": 300},
        "tests": [test("ok"), test("loop"), test("segv"), test("flood"), test("re"), test("wrong")]});
    request["tests"][5]["expected"] = json!("right");
    let answer = check(&client, &request, "OK TLE SG OLE RE WA TLE");
    assert_eq!(answer["stages"].as_array().unwrap().len(), 1, "{answer}");
    assert_eq!(answer["tests"][1]["limit"], "cpu");
    request["stop_at_first_failure"] = json!(true);
    let answer = check(&client, &request, "OK TLE TLE");
    assert_eq!(answer["mode"], "cached");
    // A limit of the test case.
    request["tests"] = json!([{"stdin": "l", "limits": {"cpu_ms": 50}}]);
    let answer = check(&client, &request, "TLE TLE");
    assert!(answer["cpu_ms"].as_f64().unwrap() < 250.0, "{answer}");
}

#[test]
fn a_checker_decides_in_any_language() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let python = "import sys\ninput, output, answer = (open(name).read() for name in sys.argv[1:])\n\
        if output.strip() == 'crash': raise SystemExit(7)\n\
        if output.strip() == 'hang':\n    while True: pass\n\
        ok = int(output) % int(input) == 0\nprint('no multiple of', input.strip(), end='')\n\
        sys.exit(0 if ok else 1)\n";
    let cpp = "#include <fstream>\n#include <iostream>\n#include <string>\n\
        int main(int, char **argv) {\n  std::ifstream in(argv[1]), out(argv[2]), ans(argv[3]);\n\
        \x20 std::string word; int n; in >> n; out >> word;\n  if (word == \"crash\") return 7;\n\
        \x20 if (word == \"hang\") for (;;) {}\n  std::cerr << \"no multiple of \" << n;\n\
        \x20 return std::stoi(word) % n == 0 ? 0 : 2;\n}\n";
    for (language, checker) in [("python", python), ("cpp", cpp)] {
        let comparison = json!({"mode": "checker", "language": language, "source": checker,
            "limits": {"cpu_ms": 500}});
        let source =
            "import sys; n = input(); print(sys.argv[1] if len(sys.argv) > 1 else int(n) * 7)";
        let mut request = tested(source, comparison, &[("3", ""), ("4", ""), ("5", ""), ("6", "")]);
        request["tests"][1]["args"] = json!(["5"]);
        request["tests"][2]["args"] = json!(["crash"]);
        request["tests"][3]["args"] = json!(["hang"]);
        let answer = check(&client, &request, "OK WA JF JF WA");
        assert_eq!(answer["message"], "no multiple of 4", "{answer}");
        assert_eq!(answer["tests"][3]["judge"]["verdict"], "TLE", "{answer}");
        assert_eq!(answer["tests"][0]["judge"]["exit_code"], 0, "{answer}");
    }
    let defined = json!({"mode": "checker", "language": "cpp", "source": "int main() { return CODE; }",
        "compile_args": ["-std=c++17", "-DCODE=1"]});
    check(&client, &tested("print(1)", defined, &[("", "")]), "WA WA");
    let broken = json!({"mode": "checker", "language": "cpp", "source": "int main( {"});
    let answer = check(&client, &tested("print(1)", broken, &[("", "")]), "JF");
    assert_eq!(answer["stages"][0]["name"], "checker", "{answer}");
}

/// Holds a number, and answers whether it is below or above each guess.
const INTERACTOR: &str = "import sys\nsecret = int(open(sys.argv[1]).read()) if len(sys.argv) > 1 else 37\n\
    for turn in range(8):\n    line = sys.stdin.readline()\n    if not line:\n        sys.exit(2)\n\
    \x20   guess = int(line)\n    if guess == secret:\n        print('right', flush=True)\n\
    \x20       print('found in', turn + 1, file=sys.stderr)\n        sys.exit(0)\n\
    \x20   print('less' if secret < guess else 'more', flush=True)\n\
    print('too many guesses', file=sys.stderr)\nsys.exit(1)\n";

/// Guesses by bisection.
const GUESSER: &str = "low, high = 0, 127\nwhile True:\n    middle = (low + high) // 2\n\
    \x20   print(middle, flush=True)\n    said = input()\n    if said == 'right': break\n\
    \x20   if said == 'less': high = middle - 1\n    else: low = middle + 1\n";

fn pair(solution: &str, interactor: &str) -> Value {
    json!({"language": "python", "source": solution, "limits": {"wall_ms": 3000},
        "interactor": {"language": "python", "source": interactor}})
}

#[test]
fn a_program_and_its_interactor_talk_until_one_is_right() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let answer = check(&client, &pair(GUESSER, INTERACTOR), "OK");
    assert_eq!(answer["message"], "found in 6", "{answer}");
    let mut request = pair(GUESSER, INTERACTOR);
    request["tests"] = json!([{"stdin": "0"}, {"stdin": "127"}, {"stdin": "500"}]);
    let answer = check(&client, &request, "OK OK WA WA");
    assert_eq!(answer["tests"][2]["message"], "too many guesses", "{answer}");

    let c = "#include <stdio.h>\nint main(void) {\n  int low = 0, high = 127;\n  char said[8];\n\
        \x20 for (;;) {\n    int middle = (low + high) / 2;\n    printf(\"%d\\n\", middle);\n\
        \x20   fflush(stdout);\n    if (scanf(\"%7s\", said) != 1) return 3;\n\
        \x20   if (said[0] == 'r') return 0;\n\
        \x20   if (said[0] == 'l') high = middle - 1; else low = middle + 1;\n\
        \x20 }\n}\n";
    let mut request = pair("", INTERACTOR);
    (request["language"], request["source"]) = (json!("c"), json!(c));
    check(&client, &request, "OK");
}

#[test]
fn whatever_two_programs_do_to_each_other_there_is_one_verdict() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let wait = "input()";
    let flood = "while True: print('x' * 1000)";
    for (solution, interactor, expected) in [
        // Both programs wait for each other.
        (wait, wait, "TLE"),
        // The interactor has decided and exited.
        (flood, "import sys; sys.exit(1)", "WA"),
        ("import time; time.sleep(0.5); print(input())", "import sys; sys.exit(1)", "WA"),
        ("import sys\nwhile True: print(1)", "pass", "RE"),
        // The interactor fails.
        ("import time; time.sleep(1)", "1 / 0", "WA"),
        ("import time; time.sleep(1)", "raise SystemExit(3)", "JF"),
        ("import time; time.sleep(1)", "import os; os.kill(os.getpid(), 11)", "JF"),
        // The program fails.
        ("raise SystemExit(5)", "import sys; sys.stdin.read()", "RE"),
        ("import os; os.kill(os.getpid(), 11)", "import sys; sys.stdin.read()", "SG"),
        // One writes without end and the other does not read.
        (flood, "import time; time.sleep(60)", "TLE"),
        ("import time; time.sleep(60)", flood, "TLE"),
        // The program continues after the interactor has exited.
        ("import sys, time; sys.stdin.read(); time.sleep(60)", "pass", "TLE"),
        // The interactor continues after the program has exited.
        ("pass", "import time; time.sleep(60)", "JF"),
        // Half-closed: all input is sent before any answer.
        (
            "import os; os.write(1, b'5'); os.close(1); assert input() == '5'",
            "import sys; print(sys.stdin.read())",
            "OK",
        ),
    ] {
        let answer = run(&client, &pair(solution, interactor));
        assert_eq!(answer["verdict"], expected, "{solution:?}, {interactor:?}: {answer}");
    }
}

/// A solution with a wrong answer must not make the judge fail: by a line too long for the
/// interactor's memory, or by output until the interactor's time limit.
#[test]
fn a_solution_that_says_too_much_is_no_failure_of_its_judge() {
    let _guard = beside_others();
    let server = serve_with("interaction_bytes_max = 4194304\n");
    let client = server.client();
    let flood = "import os\nwhile True: os.write(1, b'x' * 65536)";
    let reads = "import sys; sys.stdin.readline()";
    let lines = "while True: print('x' * 99)";
    let keeps = "import sys\nx = []\nfor line in sys.stdin: x.append('y' * 20000)";
    let counts = "import sys\nfor line in sys.stdin:\n    for _ in range(20000): pass";
    for (solution, interactor, limits, message) in [
        (flood, reads, json!({}), "more than 4194304 bytes"),
        (lines, keeps, json!({"memory_bytes": 32 << 20}), "reached its memory limit"),
        (lines, counts, json!({"cpu_ms": 1000}), "reached its cpu limit"),
    ] {
        let mut request = pair(solution, interactor);
        request["interactor"]["limits"] = limits;
        request["limits"]["wall_ms"] = json!(20_000);
        let answer = run(&client, &request);
        assert_eq!(answer["verdict"], "OLE", "{interactor}: {answer}");
        assert_eq!(answer["limit"], "output", "{answer}");
        let answered = answer["message"].as_str().unwrap();
        assert!(answered.contains(message), "{answered}");
    }
    // If the program wrote little, the failure is the judge's own.
    let mut request = pair("import time; print(1); time.sleep(1)", "while True: pass");
    request["interactor"]["limits"] = json!({"cpu_ms": 300});
    request["limits"]["wall_ms"] = json!(20_000);
    assert_eq!(run(&client, &request)["verdict"], "JF");
}

#[test]
fn a_hundred_conversations_at_once_all_end() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let request = pair(
        "for i in range(200): print(i, flush=True); assert int(input()) == i",
        "for i in range(200): print(int(input()), flush=True)",
    );
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                for _ in 0..10 {
                    check(&client, &request, "OK");
                }
            });
        }
    });
}

/// Prints everything about the workspace except times and random values.
const LOOK: &str = "#include <stdio.h>\n#include <stdlib.h>\nint main(void) {\n  fflush(stdout);\n\
    \x20 return system(\"pwd; id -un; umask; find . -printf '%p %M %u %g %s %n\\\\n' | sort; cksum $(find . -type f | sort)\");\n}\n";

#[test]
fn a_cached_program_cannot_tell_and_cannot_be_changed() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let modes = |answer: &Value| (answer["mode"].clone(), answer["stages"][0]["mode"].clone());
    let files = json!([{"name": "main.c", "content": LOOK}, {"name": "d/x", "content": "1", "executable": true}]);
    let request = json!({"language": "c", "files": files});
    let first = check(&client, &request, "OK");
    let again = check(&client, &request, "OK");
    let fresh = json!({"language": "c", "files": files, "fresh": true});
    let fresh = check(&client, &fresh, "OK");
    assert_eq!(modes(&first), (json!("fresh"), json!("fresh")), "{first}");
    assert_eq!(modes(&again), (json!("cached"), json!("cached")), "{again}");
    assert_eq!(modes(&fresh), modes(&first), "{fresh}");
    assert!(first["stdout"].as_str().unwrap().contains("./program -rwxr-xr-x"), "{first}");
    assert_eq!(first["stdout"], again["stdout"]);
    assert_eq!(first["stdout"], fresh["stdout"]);

    // Each run has its own copy: changes are absent from the next run.
    let vandal = "#include <stdio.h>\n#include <stdlib.h>\nint main(void) {\n\
        \x20 puts(\"intact\");\n  fflush(stdout);\n\
        \x20 return system(\"cp program p; echo x >> p; mv p program; chmod 777 program; \
        ls -l /proc/self/fd | grep -c memfd\") * 0;\n}\n";
    let request = json!({"language": "c", "source": vandal});
    let first = check(&client, &request, "OK");
    for _ in 0..3 {
        let again = check(&client, &request, "OK");
        assert_eq!(again["mode"], "cached");
        assert_eq!(again["stdout"], first["stdout"]);
    }
    assert!(first["stdout"].as_str().unwrap().starts_with("intact\n0\n"), "{first}");
}

#[test]
fn every_compiled_language_is_cached_and_runs_alike() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let java = "interface Say { String word(); }\npublic class Main { static class In {}\n\
        public static void main(String[] a) { Say s = () -> \"hello\"; System.out.println(s.word()); } }";
    for (language, source) in [
        ("c", "#include <stdio.h>\nint main(void) { puts(\"hello\"); }"),
        ("cpp", "#include <iostream>\nint main() { std::cout << \"hello\\n\"; }"),
        ("go", "package main\nimport \"fmt\"\nfunc main() { fmt.Println(\"hello\") }"),
        ("java", java),
        ("typescript", "const word: string = 'hello'; console.log(word)"),
        ("rust", "fn main() { println!(\"hello\"); }"),
    ] {
        let request = json!({"language": language, "source": source,
            "compile_limits": {"cpu_ms": 100_000, "wall_ms": 200_000}});
        let response = client.run(&request);
        if response.json()["error"]["code"] == "language_unavailable" {
            continue;
        }
        // The way the program itself is started may differ.
        let summary =
            |answer: &Value| (answer["stdout"].clone(), answer["stages"][0]["mode"].clone());
        let first = response.json();
        assert_eq!(summary(&first), (json!("hello\n"), json!("fresh")), "{first}");
        let again = run(&client, &request);
        assert_eq!(summary(&again), (json!("hello\n"), json!("cached")), "{again}");
    }
}

#[test]
fn equal_programs_at_once_are_compiled_once() {
    let _guard = beside_others();
    let server = serve_with("running_max = 8");
    let client = server.client();
    let source =
        |end: &str| format!("#include <stdio.h>\nint main(void) {{ puts(\"hi\"); {end} }}");
    for (end, expected) in [("", "OK"), ("return }", "CE")] {
        let request = json!({"language": "c", "source": source(end)});
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| check(&client, &request, expected));
            }
        });
    }
    let metrics = client.get("/metrics").text();
    let lookups = |result: &str| {
        let name = format!("cove_compile_cache_lookups_total{{result=\"{result}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
        line.unwrap_or_else(|| panic!("no {name} in {metrics}")).parse::<u64>().unwrap()
    };
    assert_eq!(lookups("hit") + lookups("joined") + lookups("miss"), 12, "{metrics}");
    assert!(lookups("joined") > 0, "{metrics}");
    // A rejection is not cached: later requests each receive their own.
    assert!((2..=7).contains(&lookups("miss")), "{metrics}");
}

#[test]
fn compiler_arguments_and_merged_streams_are_as_asked() {
    let _guard = beside_others();
    let server = serve();
    let client = server.client();
    let source = "#include <stdio.h>\nint main(void) { printf(\"%d\\n\", X); fflush(stdout);\n\
        fputs(\"err\\n\", stderr); puts(\"out\"); }";
    let mut request = json!({"language": "c", "source": source, "compile_args": ["-DX=42"],
        "merge_stderr": true});
    let answer = check(&client, &request, "OK");
    assert_eq!((&answer["stdout"], &answer["stderr"]), (&json!("42\nerr\nout\n"), &json!("")));
    // Other arguments are another compilation.
    request["compile_args"] = json!(["-DX=43"]);
    let answer = check(&client, &request, "OK");
    assert_eq!((&answer["stdout"], &answer["mode"]), (&json!("43\nerr\nout\n"), &json!("fresh")));
    request["compile_args"] = json!(["-DX=42", "-o", "elsewhere"]);
    check(&client, &request, "RE");
    request["tests"] = json!([{}]);
    check(&client, &request, "CE");
}
