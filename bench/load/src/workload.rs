//! Jobs: each differs from all others and has its own expected answer.

use crate::language::{C, GO, JAVA, JAVASCRIPT, Language, PYTHON};
use crate::spec::Workload;

const OUTPUT_BYTES: usize = 64 << 10;
const STDIN_BYTES: usize = 1 << 20;

/// The program to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// An existing program, with its arguments.
    Argv(Vec<String>),
    /// Source of one file, compiled if its language requires it, and run.
    Source(Source),
}

/// A program as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) language: &'static Language,
    pub(crate) text: String,
    pub(crate) args: Vec<String>,
    /// Whether other jobs of the batch have the same text; they have other arguments.
    pub(crate) repeated: bool,
}

/// The right answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Exit code 0 and this standard output.
    Output(String),
    /// Stopped because of the CPU time limit.
    CpuLimit,
}

/// A job.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Name, unique to the job.
    pub(crate) name: String,
    pub(crate) program: Program,
    pub(crate) stdin: String,
    pub(crate) expected: Expected,
}

/// The end of a program as its rival reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Exit with code 0, within all limits.
    Success,
    /// Stopped at the CPU time limit.
    CpuLimit,
    /// Any other end, in the rival's words.
    Other(String),
}

/// A rival's answer to one job.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) ending: Ending,
    pub(crate) stdout: String,
    /// CPU time of the program as the rival reports it.
    pub(crate) cpu_ms: Option<f64>,
    /// The short cut taken, if the rival has any.
    pub(crate) mode: Option<String>,
}

impl Job {
    /// Creates the job `name` of the batch `batch`. Two names give different programs, arguments or
    /// inputs, and two batches give different programs.
    pub(crate) fn new(workload: Workload, programs: &str, batch: &str, name: String) -> Job {
        let argv = |program: &str, arguments: &[&str]| {
            let mut argv = vec![program.to_owned()];
            argv.extend(arguments.iter().map(|a| (*a).to_owned()));
            Program::Argv(argv)
        };
        let output = |text: String| Expected::Output(text);
        let (program, stdin, expected) = match workload {
            Workload::Noop => {
                (argv(&format!("{programs}/noop"), &[&name]), String::new(), output(String::new()))
            }
            Workload::True => (argv("/bin/true", &[&name]), String::new(), output(String::new())),
            Workload::Python => unique(&PYTHON, format!("print('hello {name}')\n"), &name),
            Workload::C => unique(&C, c_source("", &format!("\"hello {name}\"")), &name),
            Workload::CRepeated => {
                repeated_source(&C, c_source(batch, "argv[argc - 1]"), &format!("hello {name}"))
            }
            Workload::Go => unique(&GO, go_source("", &format!("\"hello {name}\"")), &name),
            Workload::GoRepeated => {
                let args = "strings.Join(os.Args[1:], \" \")";
                repeated_source(&GO, go_source(batch, args), &format!("hello {name}"))
            }
            Workload::Javascript => {
                unique(&JAVASCRIPT, format!("console.log('hello {name}');\n"), &name)
            }
            Workload::JavaRepeated => {
                repeated_source(&JAVA, java_source(batch), &format!("hello {name}"))
            }
            Workload::Output => {
                let program =
                    argv(&format!("{programs}/emit"), &[&name, &OUTPUT_BYTES.to_string()]);
                (program, String::new(), output(repeated(&name, OUTPUT_BYTES)))
            }
            Workload::Stdin => {
                let text = repeated(&name, STDIN_BYTES);
                (argv("/bin/cat", &[]), text.clone(), output(text))
            }
            Workload::CpuLimit => {
                (argv(&format!("{programs}/spin"), &[&name]), String::new(), Expected::CpuLimit)
            }
        };
        Job { name, program, stdin, expected }
    }

    /// Returns the mistake in `answer`; `None` if it is this job's right answer.
    pub(crate) fn mistake(&self, answer: &Answer) -> Option<String> {
        match (&self.expected, &answer.ending) {
            (Expected::Output(text), Ending::Success) if *text == answer.stdout => None,
            (Expected::Output(text), Ending::Success) => Some(format!(
                "{}: output of {} bytes instead of {}: {:?}",
                self.name,
                answer.stdout.len(),
                text.len(),
                answer.stdout.chars().take(80).collect::<String>()
            )),
            (Expected::CpuLimit, Ending::CpuLimit) => None,
            (_, ending) => Some(format!("{}: ended with {ending:?}", self.name)),
        }
    }
}

/// Creates a program that has never run before.
fn unique(language: &'static Language, text: String, name: &str) -> (Program, String, Expected) {
    let source = Source { language, text, args: Vec::new(), repeated: false };
    (Program::Source(source), String::new(), Expected::Output(format!("hello {name}\n")))
}

/// Creates a program that prints its argument, which is `says`.
fn repeated_source(
    language: &'static Language,
    text: String,
    says: &str,
) -> (Program, String, Expected) {
    let source = Source { language, text, args: vec![says.to_owned()], repeated: true };
    (Program::Source(source), String::new(), Expected::Output(format!("{says}\n")))
}

fn c_source(comment: &str, says: &str) -> String {
    format!(
        "#include <stdio.h>\n/* {comment} */\n\
         int main(int argc, char **argv) {{\n    puts({says});\n    return 0;\n}}\n"
    )
}

/// Returns the seed's payload; only the repeated program needs its arguments.
fn go_source(comment: &str, says: &str) -> String {
    let imports = if says.contains("os.") { "import \"os\"\nimport \"strings\"\n" } else { "" };
    format!(
        "package main\n// {comment}\nimport \"fmt\"\n{imports}\
         func main() {{\n\tfmt.Println({says})\n}}\n"
    )
}

fn java_source(comment: &str) -> String {
    format!(
        "// {comment}\npublic class Main {{\n    public static void main(String[] args) {{\n\
         \x20       System.out.println(args[0]);\n    }}\n}}\n"
    )
}

/// Returns `bytes` bytes of `text` and a line end repeated, as `programs/emit.c` writes them.
fn repeated(text: &str, bytes: usize) -> String {
    let line = format!("{text}\n");
    let mut out = line.repeat(bytes / line.len() + 1);
    out.truncate(bytes);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Workload; 12] = [
        Workload::Noop,
        Workload::True,
        Workload::Python,
        Workload::C,
        Workload::CRepeated,
        Workload::Go,
        Workload::GoRepeated,
        Workload::Javascript,
        Workload::JavaRepeated,
        Workload::Output,
        Workload::Stdin,
        Workload::CpuLimit,
    ];

    fn answer(ending: Ending, stdout: &str) -> Answer {
        Answer { ending, stdout: stdout.to_owned(), cpu_ms: None, mode: None }
    }

    #[test]
    fn two_names_give_two_different_jobs() {
        for workload in ALL {
            let a = Job::new(workload, "/p", "b", "n-1".to_owned());
            let b = Job::new(workload, "/p", "b", "n-2".to_owned());
            assert!(a.program != b.program || a.stdin != b.stdin, "{workload:?}");
        }
    }

    #[test]
    fn another_jobs_answer_is_a_mistake() {
        let silent = [Workload::Noop, Workload::True, Workload::CpuLimit];
        for workload in ALL.into_iter().filter(|workload| !silent.contains(workload)) {
            let a = Job::new(workload, "/p", "b", "n-1".to_owned());
            let b = Job::new(workload, "/p", "b", "n-2".to_owned());
            let Expected::Output(text) = &a.expected else { panic!("{workload:?} has an output") };
            assert_eq!(a.mistake(&answer(Ending::Success, text)), None, "{workload:?}");
            assert!(b.mistake(&answer(Ending::Success, text)).is_some(), "{workload:?}");
        }
    }

    #[test]
    fn a_repeated_source_is_the_same_within_its_batch_only() {
        for workload in [Workload::CRepeated, Workload::GoRepeated, Workload::JavaRepeated] {
            let text =
                |batch: &str, name: &str| match Job::new(workload, "/p", batch, name.to_owned())
                    .program
                {
                    Program::Source(Source { text, repeated: true, .. }) => text,
                    other => panic!("{other:?} is not repeated"),
                };
            assert_eq!(text("b", "1"), text("b", "2"), "{workload:?}");
            assert_ne!(text("b", "1"), text("c", "1"), "{workload:?}");
        }
    }

    #[test]
    fn a_job_that_must_hit_its_limit_may_not_succeed() {
        let job = Job::new(Workload::CpuLimit, "/p", "b", "n".to_owned());
        assert_eq!(job.mistake(&answer(Ending::CpuLimit, "")), None);
        assert!(job.mistake(&answer(Ending::Success, "")).is_some());
        let other = Job::new(Workload::True, "/p", "b", "n".to_owned());
        assert!(other.mistake(&answer(Ending::CpuLimit, "")).is_some());
    }

    #[test]
    fn sizes_are_exact() {
        assert_eq!(repeated("abc", 10), "abc\nabc\nab");
        assert_eq!(Job::new(Workload::Stdin, "/p", "b", "n".to_owned()).stdin.len(), STDIN_BYTES);
    }
}
