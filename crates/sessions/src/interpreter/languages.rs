//! Languages of contexts: how each is started, and how its cells are encoded.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use api::ExecuteCell;
use cells::PYTHON_CELLS;
use serde_json::json;

const PYTHON_CONTEXT: &str = include_str!("drivers/context.py");
const PYTHON_CHARTS: &str = include_str!("drivers/charts.py");
const PYTHON_PARKED: &str = include_str!("drivers/parked.py");
const PYTHON_HAZARDS: &str = include_str!("drivers/hazards.py");
const NODE_CONTEXT: &str = include_str!("drivers/context.cjs");

/// Bootstrap that reads the driver from standard input and executes it. The driver's length
/// precedes it, on a line.
const PYTHON_BOOT: &str = "import os,sys
sys.path[:1]=[]
s=os.fdopen(0,'rb',0,closefd=False)
n=int(s.readline())
b=b''
while len(b)<n: b+=s.read(n-len(b))
exec(compile(b,'<cove>','exec'))";
/// Likewise, from descriptor 3. Passes `import` on to the driver, because code of `node -e` may
/// import modules.
const NODE_BOOT: &str = "const fs=require('fs'),b=Buffer.alloc(1);let h='';\
for(;;){fs.readSync(3,b,0,1);if(b[0]===10)break;h+=b;}\
const n=Number(h),s=Buffer.alloc(n);for(let i=0;i<n;)i+=fs.readSync(3,s,i,n-i);\
require('vm').runInThisContext('(function(require,load){'+s+'\\n})',{filename:'cove-context'})\
(require,(name)=>import(name));";
/// Moves the socket away from standard input, which programs of a cell may read.
const MOVE_SOCKET: &str = "exec 3<&0 </dev/null; exec \"$@\"";
/// Bootstrap that executes the driver of the parked interpreter, which is one message.
const PARKED_BOOT: &str = "import os,sys
sys.path[:1]=[]
exec(compile(os.read(0,1<<20),'<cove>','exec'))";
/// Modules that the parked interpreter imports if they are installed.
const PRELOADED: [&str; 6] =
    ["asyncio", "numpy", "pandas", "matplotlib.font_manager", "matplotlib.pyplot", "PIL.Image"];
/// Shell functions that report a cell to the server. The shell reads its lines from the socket, and
/// is interactive so that an interrupt ends a cell and not the shell.
const BASH_FUNCTIONS: &str = r#"PS1= PS2= PROMPT_COMMAND= HISTFILE=; set +o history +H
__cove_ticks() {
  local -a s; read -r -a s < /proc/$$/stat; REPLY=$((s[13] + s[14] + s[15] + s[16]))
}
__cove_running() { printf '{"type":"running"}\n' >&0; }
__cove_done() {
  local code=$1 name value rest peak=0 failed=false
  __cove_ticks
  while read -r name value rest; do
    [ "$name" = VmHWM: ] && peak=$((value * 1024))
  done < /proc/$$/status
  if [ "$code" != 0 ]; then
    failed=true
    printf '{"type":"error","name":"ExitStatus","value":"%d","traceback":"%s %d"}\n' \
      "$code" "the shell has ended the cell with status" "$code" >&0
  fi
  printf '{"type":"done","failed":%s,"cpu_us":%d,"memory_bytes":%d}\n' \
    "$failed" "$(((REPLY - __COVE_TICKS) * 10000))" "$peak" >&0
}
"#;

/// Language of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CellLanguage {
    Python,
    JavaScript,
    TypeScript,
    Bash,
}

/// Parameters of a context's start.
#[derive(Clone, Debug)]
pub(super) struct ContextStart {
    pub(super) language: CellLanguage,
    pub(super) cwd: String,
    pub(super) env: BTreeMap<String, String>,
}

impl CellLanguage {
    /// Finds a language by a caller's name for it; Python without a name.
    pub(crate) fn named(name: Option<&str>) -> Option<CellLanguage> {
        match name.map(|name| name.trim().to_ascii_lowercase()).as_deref() {
            None | Some("" | "python") => Some(CellLanguage::Python),
            Some("javascript" | "js") => Some(CellLanguage::JavaScript),
            Some("typescript" | "ts") => Some(CellLanguage::TypeScript),
            Some("bash") => Some(CellLanguage::Bash),
            Some(_) => None,
        }
    }

    /// Returns the language's name.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            CellLanguage::Python => "python",
            CellLanguage::JavaScript => "javascript",
            CellLanguage::TypeScript => "typescript",
            CellLanguage::Bash => "bash",
        }
    }

    /// Returns the program that a sandbox needs for it.
    pub(super) fn program(self) -> &'static str {
        match self {
            CellLanguage::Python => "python3",
            CellLanguage::JavaScript | CellLanguage::TypeScript => "node",
            CellLanguage::Bash => "bash",
        }
    }

    /// Returns the command of a context that runs as its own program.
    pub(super) fn argv(self) -> Vec<Vec<u8>> {
        let argv: &[&str] = match self {
            CellLanguage::Python => &["python3", "-c", PYTHON_BOOT],
            CellLanguage::JavaScript | CellLanguage::TypeScript => {
                &["/bin/sh", "-c", MOVE_SOCKET, "sh", "node", "-e", NODE_BOOT]
            }
            CellLanguage::Bash => &["bash", "--norc", "--noprofile", "--noediting", "-i"],
        };
        argv.iter().map(|part| part.as_bytes().to_vec()).collect()
    }

    /// Returns why a context of this language cannot be forked; none if it can.
    pub(crate) fn fork_refusal(self) -> Option<&'static str> {
        match self {
            CellLanguage::Python => None,
            CellLanguage::JavaScript | CellLanguage::TypeScript => {
                Some("Node.js runs threads, of which a copy of its process would have one")
            }
            CellLanguage::Bash => Some(
                "a shell cannot be handed the sockets of a copy; write what it has defined to a \
                 file (`declare -p > state`) and read that in a new context",
            ),
        }
    }

    /// Returns why a cell cannot be sent to a context of this language; none if it can.
    pub(crate) fn refusal(self, code: &str) -> Option<&'static str> {
        let is_refused = self == CellLanguage::Bash && code.contains('\0');
        is_refused.then_some("has no NUL character in bash")
    }

    /// Encodes a cell for a context that was started with `start`.
    pub(super) fn cell(self, cell: &ExecuteCell, count: u64, start: &ContextStart) -> Vec<u8> {
        if self != CellLanguage::Bash {
            let request = json!({ "code": cell.code, "env": cell.env, "count": count });
            return format!("{request}\n").into_bytes();
        }
        let mut lines = "__cove_ticks; __COVE_TICKS=$REPLY; ".to_owned();
        for (name, value) in &cell.env {
            push(&mut lines, format_args!("export {name}={}; ", quoted(value)));
        }
        // From here on, an interrupt discards this line, and the next line reports it. An earlier
        // interrupt could arrive while a line is being read, and the rest of the line would be
        // executed. The cell must not read the shell's input, which is the socket.
        lines.push_str("__cove_running; ");
        push(&mut lines, format_args!("eval {} </dev/null\n", quoted(&cell.code)));
        lines.push_str("__cove_done $?");
        for name in cell.env.keys() {
            match start.env.get(name) {
                Some(value) => push(&mut lines, format_args!("; export {name}={}", quoted(value))),
                None => push(&mut lines, format_args!("; unset {name}")),
            }
        }
        lines.push('\n');
        lines.into_bytes()
    }
}

/// Appends to a string, which never fails.
fn push(text: &mut String, part: std::fmt::Arguments<'_>) {
    text.write_fmt(part).expect("a string takes everything");
}

/// Quotes a text as one shell word.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

impl ContextStart {
    /// Returns the first input of a context that runs as its own program.
    pub(super) fn greeting(&self) -> Vec<u8> {
        let source = match self.language {
            CellLanguage::Python => python_driver("serve_alone()"),
            CellLanguage::JavaScript | CellLanguage::TypeScript => NODE_CONTEXT.to_owned(),
            CellLanguage::Bash => {
                let cwd = quoted(&self.cwd);
                return format!(
                    "{BASH_FUNCTIONS}cd -- {cwd} && printf '{{\"type\":\"ready\"}}\\n' >&0 || \
                     printf '{{\"type\":\"failed\",\"message\":\"cwd: cannot be entered\"}}\\n' >&0\n"
                )
                .into_bytes();
            }
        };
        format!("{}\n{source}{}\n", source.len(), self.request()).into_bytes()
    }

    /// Returns the JSON form for a driver.
    fn request(&self) -> serde_json::Value {
        json!({ "language": self.language.as_str(), "cwd": self.cwd, "env": self.env })
    }

    /// Returns the message that makes the parked interpreter fork this context.
    pub(super) fn fork(&self, id: u64) -> Vec<u8> {
        let mut request = self.request();
        request["op"] = json!("fork");
        request["id"] = json!(id);
        request.to_string().into_bytes()
    }
}

/// Returns the Python driver, with the statement to run after all definitions.
fn python_driver(last: &str) -> String {
    format!("{PYTHON_CELLS}{PYTHON_CONTEXT}{PYTHON_CHARTS}\n{last}\n")
}

/// Returns the message that makes a context fork itself.
pub(super) fn copy_request(force: bool) -> Vec<u8> {
    format!("{}\n", json!({ "fork": { "force": force } })).into_bytes()
}

/// Returns the message that makes the parked interpreter adopt a context's copy.
pub(super) fn adoption(id: u64, pid: u32) -> Vec<u8> {
    json!({ "op": "adopt", "id": id, "pid": pid }).to_string().into_bytes()
}

/// Returns the command of the parked interpreter.
pub(super) fn parked_argv() -> Vec<Vec<u8>> {
    ["python3", "-c", PARKED_BOOT].iter().map(|part| part.as_bytes().to_vec()).collect()
}

/// Returns the driver of the parked interpreter.
pub(super) fn parked_source() -> Vec<u8> {
    python_driver(&format!("{PYTHON_PARKED}\nserve_parked()")).into_bytes()
}

/// Returns the program that reports what would prevent an interpreter from forking.
pub(super) fn hazard_source() -> String {
    let modules = ["IPython"].iter().chain(&PRELOADED).collect::<Vec<_>>();
    let last = format!("report_hazards({})", json!(modules));
    python_driver(&format!("{PYTHON_PARKED}{PYTHON_HAZARDS}\n{last}"))
}

/// Returns the message that makes the parked interpreter import its modules, without those that
/// start threads.
pub(super) fn parked_start(without: &[String]) -> Vec<u8> {
    let is_wanted = |name: &&&str| !without.iter().any(|module| module.as_str() == **name);
    let preload: Vec<&&str> = PRELOADED.iter().filter(is_wanted).collect();
    json!({ "preload": preload }).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    //! Names of languages, and encoded cells.

    use super::*;

    #[test]
    fn languages_have_the_names_that_clients_use() {
        for (name, expected) in [
            (None, Some("python")),
            (Some(""), Some("python")),
            (Some(" Python "), Some("python")),
            (Some("js"), Some("javascript")),
            (Some("javascript"), Some("javascript")),
            (Some("ts"), Some("typescript")),
            (Some("bash"), Some("bash")),
            (Some("r"), None),
            (Some("python3"), None),
        ] {
            assert_eq!(CellLanguage::named(name).map(CellLanguage::as_str), expected, "{name:?}");
        }
    }

    #[test]
    fn a_cell_for_a_shell_is_one_word_whatever_is_in_it() {
        let start = ContextStart {
            language: CellLanguage::Bash,
            cwd: "/workspace".to_owned(),
            env: BTreeMap::from([("KEPT".to_owned(), "a'b".to_owned())]),
        };
        let cell = ExecuteCell {
            code: "echo 'x'; echo \"$(y)\"".to_owned(),
            env: [("KEPT", "1"), ("NEW", "2")].map(|(k, v)| (k.into(), v.into())).into(),
            timeout_ms: None,
        };
        let text = String::from_utf8(CellLanguage::Bash.cell(&cell, 1, &start)).unwrap();
        let (first, second) = text.split_once('\n').unwrap();
        assert!(first.ends_with(r#"eval 'echo '\''x'\''; echo "$(y)"' </dev/null"#), "{first}");
        assert!(first.contains("export KEPT='1'; export NEW='2'; "), "{first}");
        assert_eq!(second, "__cove_done $?; export KEPT='a'\\''b'; unset NEW\n");
    }

    #[test]
    fn a_parked_interpreter_leaves_out_what_starts_threads() {
        let start = String::from_utf8(parked_start(&["pandas".to_owned()])).unwrap();
        assert!(start.contains("numpy") && !start.contains("pandas"), "{start}");
    }
}
