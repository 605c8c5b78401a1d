//! Jobs: each unlike every other one, with the answer that very job must give.

use crate::spec::Workload;

const OUTPUT_BYTES: usize = 64 << 10;
const STDIN_BYTES: usize = 1 << 20;

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// A program that is there already, with its arguments.
    Argv(Vec<String>),
    /// Python source, run by the host's interpreter.
    Python(String),
    /// C source, compiled and run.
    C(String),
}

/// What a right answer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Exit code 0 and this standard output.
    Output(String),
    /// Stopped because of the CPU time limit.
    CpuLimit,
}

/// One job.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Unlike that of any other job.
    pub(crate) name: String,
    pub(crate) program: Program,
    pub(crate) stdin: String,
    pub(crate) expected: Expected,
}

/// How a rival says that a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By itself with exit code 0, within all limits.
    Success,
    /// Stopped at the CPU time limit.
    CpuLimit,
    /// In any other way, in the rival's words.
    Other(String),
}

/// A rival's answer to one job.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) ending: Ending,
    pub(crate) stdout: String,
    /// CPU time of the program as the rival reports it.
    pub(crate) cpu_ms: Option<f64>,
}

impl Job {
    /// The job called `name`; two names give two different programs, arguments or inputs.
    pub(crate) fn new(workload: Workload, programs: &str, name: String) -> Job {
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
            Workload::Python => {
                let source = format!("print('hello {name}')\n");
                (Program::Python(source), String::new(), output(format!("hello {name}\n")))
            }
            Workload::C => {
                let source = format!(
                    "#include <stdio.h>\n\
                     int main(void) {{\n    puts(\"hello {name}\");\n    return 0;\n}}\n"
                );
                (Program::C(source), String::new(), output(format!("hello {name}\n")))
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

    /// Why `answer` is not this job's; `None` when it is.
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

/// `bytes` bytes of `text` and a line end over and over, as `programs/emit.c` writes them.
fn repeated(text: &str, bytes: usize) -> String {
    let line = format!("{text}\n");
    let mut out = line.repeat(bytes / line.len() + 1);
    out.truncate(bytes);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Workload; 7] = [
        Workload::Noop,
        Workload::True,
        Workload::Python,
        Workload::C,
        Workload::Output,
        Workload::Stdin,
        Workload::CpuLimit,
    ];

    fn answer(ending: Ending, stdout: &str) -> Answer {
        Answer { ending, stdout: stdout.to_owned(), cpu_ms: None }
    }

    #[test]
    fn two_names_give_two_different_jobs() {
        for workload in ALL {
            let a = Job::new(workload, "/p", "n-1".to_owned());
            let b = Job::new(workload, "/p", "n-2".to_owned());
            assert!(a.program != b.program || a.stdin != b.stdin, "{workload:?}");
        }
    }

    #[test]
    fn another_jobs_answer_is_a_mistake() {
        for workload in [Workload::Python, Workload::C, Workload::Output, Workload::Stdin] {
            let a = Job::new(workload, "/p", "n-1".to_owned());
            let b = Job::new(workload, "/p", "n-2".to_owned());
            let Expected::Output(text) = &a.expected else { panic!("{workload:?} has an output") };
            assert_eq!(a.mistake(&answer(Ending::Success, text)), None, "{workload:?}");
            assert!(b.mistake(&answer(Ending::Success, text)).is_some(), "{workload:?}");
        }
    }

    #[test]
    fn a_job_that_must_hit_its_limit_may_not_succeed() {
        let job = Job::new(Workload::CpuLimit, "/p", "n".to_owned());
        assert_eq!(job.mistake(&answer(Ending::CpuLimit, "")), None);
        assert!(job.mistake(&answer(Ending::Success, "")).is_some());
        let other = Job::new(Workload::True, "/p", "n".to_owned());
        assert!(other.mistake(&answer(Ending::CpuLimit, "")).is_some());
    }

    #[test]
    fn sizes_are_exact() {
        assert_eq!(repeated("abc", 10), "abc\nabc\nab");
        assert_eq!(Job::new(Workload::Stdin, "/p", "n".to_owned()).stdin.len(), STDIN_BYTES);
    }
}
