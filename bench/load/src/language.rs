//! Languages for rivals that support none themselves: the same tools with the same arguments as
//! Cove uses.

use std::collections::BTreeMap;

/// How to run programs of one language.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Language {
    /// Cove's name of the language.
    pub(crate) name: &'static str,
    /// The program's file.
    pub(crate) file: &'static str,
    /// The compiler's command line; empty for interpreted languages.
    compile: &'static [&'static str],
    /// The compiler's output.
    pub(crate) artifact: &'static str,
    /// The program's command line, before its own arguments.
    run: &'static [&'static str],
    /// Environment that the tools need.
    env: &'static [(&'static str, &'static str)],
}

/// The compiler's command line in every sandbox: the same flags, for a fair comparison.
const COMPILE: [&str; 5] = ["/usr/bin/gcc", "-O1", "-o", "program", "main.c"];

pub(crate) const C: Language = Language {
    name: "c",
    file: "main.c",
    compile: &COMPILE,
    artifact: "program",
    run: &["./program"],
    env: &[],
};

pub(crate) const PYTHON: Language = Language {
    name: "python",
    file: "main.py",
    compile: &[],
    artifact: "",
    run: &["/usr/bin/python3", "main.py"],
    env: &[],
};

pub(crate) const GO: Language = Language {
    name: "go",
    file: "main.go",
    compile: &["{go}", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", "program", "main.go"],
    artifact: "program",
    run: &["./program"],
    env: &[
        ("GOCACHE", "{gocache}"),
        ("GOPATH", "/tmp/go"),
        ("GO111MODULE", "auto"),
        ("GOPROXY", "off"),
        ("GOTOOLCHAIN", "local"),
        ("GOTELEMETRY", "off"),
        ("GOFLAGS", "-mod=mod"),
        ("CGO_ENABLED", "0"),
    ],
};

pub(crate) const JAVASCRIPT: Language = Language {
    name: "javascript",
    file: "main.js",
    compile: &[],
    artifact: "",
    run: &["{node}", "--max-old-space-size=384", "main.js"],
    env: &[],
};

pub(crate) const JAVA: Language = Language {
    name: "java",
    file: "Main.java",
    compile: &[
        "{javac}",
        "-J-Xshare:auto",
        "-J-XX:TieredStopAtLevel=1",
        "-J-XX:+UseSerialGC",
        "-J-XX:-UsePerfData",
        "-encoding",
        "UTF-8",
        "-d",
        ".",
        "Main.java",
    ],
    artifact: "Main.class",
    run: &["{java}", "-Xshare:auto", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-cp", ".", "Main"],
    env: &[],
};

/// Paths on this machine, by their placeholders.
pub(crate) type Tools = BTreeMap<String, String>;

impl Language {
    /// Returns the compiler's command line; none for interpreted languages.
    pub(crate) fn compile(&self, tools: &Tools) -> Result<Option<Vec<String>>, String> {
        match self.compile {
            [] => Ok(None),
            words => {
                words.iter().map(|word| filled(word, tools)).collect::<Result<_, _>>().map(Some)
            }
        }
    }

    /// Returns the program's command line with its arguments.
    pub(crate) fn run(&self, tools: &Tools, args: &[String]) -> Result<Vec<String>, String> {
        let words = self.run.iter().map(|word| filled(word, tools));
        words.chain(args.iter().cloned().map(Ok)).collect()
    }

    /// Returns the environment of the tools, as `NAME=value`.
    pub(crate) fn env(&self, tools: &Tools) -> Result<Vec<String>, String> {
        let pair = |(name, value): &(&str, &str)| Ok(format!("{name}={}", filled(value, tools)?));
        self.env.iter().map(pair).collect()
    }
}

fn filled(word: &str, tools: &Tools) -> Result<String, String> {
    match word.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        None => Ok(word.to_owned()),
        Some(name) => tools.get(name).cloned().ok_or_else(|| format!("find the tool {name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_filled_in_and_missed() {
        let tools = Tools::from([("node".to_owned(), "/n".to_owned())]);
        let args = ["x".to_owned()];
        assert_eq!(
            JAVASCRIPT.run(&tools, &args).unwrap(),
            ["/n", "--max-old-space-size=384", "main.js", "x"]
        );
        assert_eq!(JAVASCRIPT.compile(&tools), Ok(None));
        assert!(GO.compile(&tools).unwrap_err().contains("go"));
        assert!(GO.env(&tools).unwrap_err().contains("gocache"));
        assert_eq!(C.compile(&tools).unwrap().unwrap(), COMPILE);
    }
}
