//! Argument lists with placeholders, checked once at load and filled in for every request.

use std::collections::BTreeSet;

/// A list of words with placeholders in them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ArgumentTemplate {
    words: Vec<TemplateWord>,
}

#[derive(Clone, Debug)]
enum TemplateWord {
    /// Every file of the language, as separate words.
    Files,
    /// Every argument of the caller, as separate words.
    Args,
    /// Every argument of the caller to the compiler, as separate words.
    CompileArgs,
    /// A word.
    Text(Vec<TemplatePiece>),
}

#[derive(Clone, Debug)]
enum TemplatePiece {
    Literal(String),
    Entry,
    EntryDir,
    Stem,
    Class,
    HeapMib,
    Prepared,
}

/// Values of the placeholders for one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TemplateValues<'a> {
    /// Name of the first file.
    pub(crate) entry: &'a str,
    /// Names of all files of the language, the entry first.
    pub(crate) files: &'a [&'a str],
    /// The caller's arguments.
    pub(crate) args: &'a [String],
    /// Memory limit of the stage.
    pub(crate) memory_bytes: u64,
    /// The directory that `prepare` filled, or a writable one in place of it.
    pub(crate) prepared: &'a str,
}

/// Location of a tool, as seen where the words will be used.
pub(super) struct LocatedTool<'a> {
    pub(super) program: &'a str,
    pub(super) directory: &'a str,
}

impl ArgumentTemplate {
    /// Parses `words`; `tool` returns the location of a tool, or `None` for an unknown name. Adds
    /// the names of tools that occur to `used`.
    pub(super) fn parse<'t>(
        arguments: &[String],
        tool: &dyn Fn(&str) -> Option<LocatedTool<'t>>,
        used: &mut BTreeSet<String>,
    ) -> Result<ArgumentTemplate, String> {
        let arguments =
            arguments.iter().map(|word| parse_word(word, tool, used)).collect::<Result<_, _>>()?;
        Ok(ArgumentTemplate { words: arguments })
    }

    /// Returns the words for one request.
    pub(crate) fn fill(&self, values: &TemplateValues<'_>) -> Vec<Vec<u8>> {
        self.fill_compile(values, &[])
    }

    /// Fills the template of a compiler; its arguments are appended if the template has no
    /// placeholder for them.
    pub(crate) fn fill_compile(
        &self,
        values: &TemplateValues<'_>,
        compile_args: &[String],
    ) -> Vec<Vec<u8>> {
        let compile_words = || compile_args.iter().map(|arg| arg.as_bytes().to_vec());
        let word_count = self.words.len() + values.args.len() + compile_args.len();
        let mut filled = Vec::with_capacity(word_count);
        let mut placed = false;
        for word in &self.words {
            match word {
                TemplateWord::Files => {
                    filled.extend(values.files.iter().map(|name| plain(name).into_bytes()))
                }
                TemplateWord::Args => {
                    filled.extend(values.args.iter().map(|arg| arg.as_bytes().to_vec()))
                }
                TemplateWord::CompileArgs => {
                    placed = true;
                    filled.extend(compile_words());
                }
                TemplateWord::Text(pieces) => filled.push(fill_word(pieces, values).into_bytes()),
            }
        }
        if !placed {
            filled.extend(compile_words());
        }
        filled
    }
}

fn parse_word<'t>(
    word: &str,
    tool: &dyn Fn(&str) -> Option<LocatedTool<'t>>,
    used: &mut BTreeSet<String>,
) -> Result<TemplateWord, String> {
    match word {
        "{files}" => return Ok(TemplateWord::Files),
        "{args}" => return Ok(TemplateWord::Args),
        "{compile_args}" => return Ok(TemplateWord::CompileArgs),
        _ => {}
    }
    let mut pieces = Vec::new();
    let mut rest = word;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else {
            return Err(format!("`{word}`: `{{` without `}}`"));
        };
        if !before.is_empty() {
            pieces.push(TemplatePiece::Literal(before.to_owned()));
        }
        pieces.push(parse_placeholder(name, tool, used).ok_or_else(|| match name {
            "files" | "args" | "compile_args" => {
                format!("`{word}`: `{{{name}}}` must be a word by itself")
            }
            _ => format!("`{word}`: there is no tool and no placeholder `{name}`"),
        })?);
        rest = after;
    }
    if !rest.is_empty() || pieces.is_empty() {
        pieces.push(TemplatePiece::Literal(rest.to_owned()));
    }
    Ok(TemplateWord::Text(pieces))
}

fn parse_placeholder<'t>(
    name: &str,
    tool: &dyn Fn(&str) -> Option<LocatedTool<'t>>,
    used: &mut BTreeSet<String>,
) -> Option<TemplatePiece> {
    let piece = match name {
        "entry" => TemplatePiece::Entry,
        "entry_dir" => TemplatePiece::EntryDir,
        "stem" => TemplatePiece::Stem,
        "class" => TemplatePiece::Class,
        "heap_mib" => TemplatePiece::HeapMib,
        "prepared" => TemplatePiece::Prepared,
        _ => {
            let (name, directory) = match name.strip_suffix(".dir") {
                Some(name) => (name, true),
                None => (name, false),
            };
            let located = tool(name)?;
            used.insert(name.to_owned());
            let text = if directory { located.directory } else { located.program };
            TemplatePiece::Literal(text.to_owned())
        }
    };
    Some(piece)
}

fn fill_word(pieces: &[TemplatePiece], values: &TemplateValues<'_>) -> String {
    let mut word = String::new();
    for piece in pieces {
        match piece {
            TemplatePiece::Literal(text) => word.push_str(text),
            TemplatePiece::Entry => word.push_str(&plain(values.entry)),
            TemplatePiece::EntryDir => match values.entry.rsplit_once('/') {
                Some((directory, _)) => {
                    word.push_str("./");
                    word.push_str(directory);
                }
                None => word.push('.'),
            },
            TemplatePiece::Stem => word.push_str(&plain(stem(values.entry))),
            TemplatePiece::Class => word.push_str(&stem(values.entry).replace('/', ".")),
            TemplatePiece::HeapMib => word.push_str(&heap_mib(values.memory_bytes).to_string()),
            TemplatePiece::Prepared => word.push_str(values.prepared),
        }
    }
    word
}

/// Returns a file name that no tool interprets as an option.
fn plain(name: &str) -> String {
    if name.starts_with('-') { format!("./{name}") } else { name.to_owned() }
}

/// Returns the name without its extension: `a/b.c` → `a/b`, `.profile` → `.profile`.
fn stem(name: &str) -> &str {
    let file = name.rfind('/').map_or(0, |slash| slash + 1);
    match name.rfind('.') {
        Some(dot) if dot > file => &name[..dot],
        _ => name,
    }
}

/// Returns three quarters of the limit: the rest is for the runtime, its code and its threads'
/// stacks.
fn heap_mib(memory_bytes: u64) -> u64 {
    (memory_bytes / 4 * 3 / (1 << 20)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(arguments: &[&str], expected: Result<&[&str], &str>) {
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        let tool = |name: &str| {
            (name == "cc")
                .then_some(LocatedTool { program: "/opt/cc/bin/cc", directory: "/opt/cc" })
        };
        let mut used = BTreeSet::new();
        let args = ["one".to_owned(), "-two".to_owned()];
        let values = TemplateValues {
            entry: "a/b.main.c",
            files: &["a/b.main.c", "-o.c"],
            args: &args,
            memory_bytes: 512 << 20,
            prepared: "/opt/x",
        };
        let filled = ArgumentTemplate::parse(&arguments, &tool, &mut used).map(|template| {
            let filled = template.fill(&values);
            filled.into_iter().map(|word| String::from_utf8(word).unwrap()).collect::<Vec<_>>()
        });
        match (filled, expected) {
            (Ok(filled), Ok(expected)) => assert_eq!(filled, expected),
            (Err(problem), Err(expected)) => {
                assert!(problem.contains(expected), "`{problem}` has no `{expected}`");
            }
            (filled, _) => panic!("{arguments:?} gave {filled:?}"),
        }
    }

    #[test]
    fn placeholders_are_filled_in() {
        check(&["{cc}", "-x"], Ok(&["/opt/cc/bin/cc", "-x"]));
        check(&["{cc.dir}/lib"], Ok(&["/opt/cc/lib"]));
        check(
            &["{entry}", "{entry_dir}", "{stem}", "{class}"],
            Ok(&["a/b.main.c", "./a", "a/b.main", "a.b.main"]),
        );
        check(&["-m{heap_mib}m{entry}!"], Ok(&["-m384ma/b.main.c!"]));
        check(&["", "x"], Ok(&["", "x"]));
        check(&["{prepared}/y"], Ok(&["/opt/x/y"]));
    }

    #[test]
    fn lists_become_words_of_their_own_and_never_options() {
        check(&["{files}"], Ok(&["a/b.main.c", "./-o.c"]));
        check(&["x", "{args}", "y"], Ok(&["x", "one", "-two", "y"]));
    }

    #[test]
    fn a_compiler_s_arguments_have_a_place_or_come_last() {
        let args = ["-g".to_owned(), "-DX".to_owned()];
        let values =
            TemplateValues { entry: "a", files: &[], args: &[], memory_bytes: 0, prepared: "" };
        for (arguments, expected) in [
            (vec!["cc", "{compile_args}", "x"], vec!["cc", "-g", "-DX", "x"]),
            (vec!["cc", "x"], vec!["cc", "x", "-g", "-DX"]),
        ] {
            let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
            let template =
                ArgumentTemplate::parse(&arguments, &|_| None, &mut BTreeSet::new()).unwrap();
            let filled = template.fill_compile(&values, &args);
            assert_eq!(filled, expected.iter().map(|w| w.as_bytes().to_vec()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn mistakes_are_found_at_load() {
        check(&["{gcc}"], Err("no tool and no placeholder `gcc`"));
        check(&["{gcc.dir}"], Err("no placeholder `gcc.dir`"));
        check(&["a{files}"], Err("must be a word by itself"));
        check(&["{entry"], Err("without"));
    }

    #[test]
    fn a_stem_keeps_names_that_only_look_like_extensions() {
        assert_eq!(stem("main.py"), "main");
        assert_eq!(stem("a.b/main"), "a.b/main");
        assert_eq!(stem(".profile"), ".profile");
        assert_eq!(stem("d/.profile"), "d/.profile");
    }
}
