//! Rules for names and for the first words of doc comments: a type is found by its name, a name
//! consists of words that an engineer would search for, and a doc comment names its subject before
//! it gives details.

use std::collections::BTreeMap;

use super::{Findings, SourceFile};

/// Types that may share a name, and why.
const SHARED_NAMES: &[(&str, &str)] = &[];
/// Participles that do not end in `ed` or `ing`.
const PARTICIPLES: &[&str] = &[
    "Begun", "Bound", "Built", "Chosen", "Done", "Drawn", "Found", "Given", "Gone", "Heard",
    "Held", "Kept", "Known", "Left", "Lost", "Made", "Owed", "Paid", "Ran", "Read", "Said", "Seen",
    "Sent", "Shown", "Spent", "Taken", "Told", "Written",
];
/// Nouns that end like participles.
const NOUNS: &[&str] = &["Encoding", "Kind", "Setting", "String", "Timing"];
/// Private metaphors for established terms.
const METAPHORS: &[&str] = &[
    "desk",
    "desks",
    "ear",
    "ears",
    "gather",
    "gathering",
    "ground",
    "heir",
    "heirs",
    "hungry",
    "hush",
    "parcel",
    "parcels",
];
/// Words that declare a name.
const DECLARATIONS: &[&str] =
    &["const", "enum", "fn", "let", "mod", "mut", "static", "struct", "trait", "type"];
/// Words that begin a clause or replace a noun.
const CLAUSE_OPENINGS: &[&str] = &[
    "Everything",
    "How",
    "It",
    "Its",
    "Nobody",
    "Nothing",
    "One",
    "Somebody",
    "Something",
    "Those",
    "What",
    "Whatever",
    "Where",
    "Whether",
    "Which",
    "Who",
    "Whoever",
    "Whose",
];

/// Checks names and doc comments of shipped crates.
pub(super) fn check(files: &[SourceFile], findings: &mut Findings) {
    let mut types: BTreeMap<&str, Vec<(&str, usize)>> = BTreeMap::new();
    for file in files.iter().filter(|file| is_shipped(&file.path)) {
        let lines: Vec<&str> =
            file.text.lines().take_while(|line| *line != "#[cfg(test)]").collect();
        for (index, line) in lines.iter().enumerate() {
            if let Some(name) = type_name(line) {
                types.entry(name).or_default().push((&file.path, index + 1));
                if is_participle(name) {
                    let what = format!("`{name}` does not say what it is: add the noun");
                    findings.add(&file.path, index + 1, what);
                }
            }
            for name in declared_names(line) {
                if let Some(word) = metaphor(name) {
                    let what = format!("`{name}` has `{word}` in it: use the term of the field");
                    findings.add(&file.path, index + 1, what);
                }
            }
            let begins = index == 0 || !lines[index - 1].trim_start().starts_with("///");
            if begins
                && let Some(word) = clause_opening(line)
                && is_public(&lines[index..])
            {
                let what = format!("begins with `{word}`: begin with a noun or a verb");
                findings.add(&file.path, index + 1, what);
            }
        }
    }
    for (name, places) in types {
        let is_agreed = SHARED_NAMES.iter().any(|(shared, _)| *shared == name);
        if let ([(first, _), others @ ..], false) = (&*places, is_agreed) {
            for (path, line) in others {
                findings.add(path, *line, format!("`{name}` is a type of {first} already"));
            }
        }
    }
}

/// Tests may be named as it is clear there.
fn is_shipped(path: &str) -> bool {
    let is_test = path.contains("/tests/") || path.ends_with("/tests.rs");
    path.starts_with("crates/")
        && path.contains("/src/")
        && path.ends_with(".rs")
        && !is_test
        && !path.starts_with("crates/testkit/")
}

/// Returns the name of a type that is declared on this line, at the top of its file: those of inner
/// modules and functions are near to where they are used.
fn type_name(line: &str) -> Option<&str> {
    let mut rest = line;
    if let Some(after) = rest.strip_prefix("pub") {
        rest = after.strip_prefix(' ').or_else(|| Some(after.split_once(") ")?.1))?;
    }
    let rest = ["struct ", "enum ", "trait "].iter().find_map(|kind| rest.strip_prefix(kind))?;
    let end = rest.find(|it: char| !it.is_alphanumeric()).unwrap_or(rest.len());
    Some(&rest[..end])
}

/// Returns the names that a keyword declares on this line.
fn declared_names(line: &str) -> Vec<&str> {
    let code = line.split("//").next().unwrap_or_default();
    let words = code.split(|it: char| !it.is_alphanumeric() && it != '_');
    let words: Vec<&str> = words.filter(|it| !it.is_empty()).collect();
    let declared = words.windows(2).filter(|pair| DECLARATIONS.contains(&pair[0]));
    declared.map(|pair| pair[1]).collect()
}

/// Returns the word of a name that is a metaphor.
fn metaphor(name: &str) -> Option<&'static str> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for it in name.chars() {
        if it == '_' || was_lower && it.is_ascii_uppercase() {
            words.push(String::new());
        }
        was_lower = it.is_ascii_lowercase();
        if let Some(word) = words.last_mut()
            && it != '_'
        {
            word.push(it.to_ascii_lowercase());
        }
    }
    METAPHORS.iter().copied().find(|known| words.iter().any(|word| word == known))
}

/// Returns whether a name is a single word that is a participle.
fn is_participle(name: &str) -> bool {
    let words = name.matches(|it: char| it.is_ascii_uppercase()).count();
    let ending = name.ends_with("ed") || name.ends_with("ing");
    words == 1 && !NOUNS.contains(&name) && (ending || PARTICIPLES.contains(&name))
}

/// Returns the first word of a doc comment, if it begins a clause or replaces a noun.
fn clause_opening(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("/// ")?;
    let word = text.split(|it: char| !it.is_alphanumeric()).next()?;
    CLAUSE_OPENINGS.contains(&word).then_some(word)
}

/// Returns whether the item after these lines of documentation and attributes is public.
fn is_public(lines: &[&str]) -> bool {
    let mut in_attribute = false;
    let item = lines.iter().map(|line| line.trim_start()).find(|line| {
        in_attribute |= line.starts_with("#[");
        let is_before = in_attribute || line.starts_with("///");
        in_attribute &= !line.ends_with(']');
        !is_before
    });
    item.is_some_and(|line| line.starts_with("pub "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(texts: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| SourceFile {
            path: format!("crates/{path}"),
            text: (*text).to_owned(),
            size: text.len(),
        };
        let files: Vec<SourceFile> = texts.iter().map(file).collect();
        let mut findings = Findings::default();
        check(&files, &mut findings);
        findings.0
    }

    #[test]
    fn a_type_has_a_name_of_its_own() {
        for (one, other, count) in [
            ("struct Pool;", "pub enum Pool {}", 1),
            ("pub(crate) trait Pool {}", "pub(in crate::a) struct Pool<T>(T);", 1),
            ("struct Pool;", "struct PoolStats;", 0),
            ("struct Pool;", "    struct Pool;", 0),
            ("struct Pool;", "#[cfg(test)]\nstruct Pool;", 0),
        ] {
            let found = findings(&[("a/src/lib.rs", one), ("b/src/lib.rs", other)]);
            assert_eq!(found.len(), count, "{one} {other}: {found:?}");
        }
        let tests = [("a/src/lib.rs", "struct Pool;"), ("a/src/tests.rs", "struct Pool;")];
        assert_eq!(findings(&tests), [""; 0]);
    }

    #[test]
    fn a_participle_needs_its_noun() {
        for (name, count) in [
            ("Running", 1),
            ("Shown", 1),
            ("Parsed", 1),
            ("ParsedText", 0),
            ("Encoding", 0),
            ("Kind", 0),
        ] {
            assert_eq!(findings(&[("a/src/lib.rs", &format!("enum {name} {{}}"))]).len(), count);
        }
    }

    #[test]
    fn a_name_is_made_of_terms_of_the_field() {
        for (line, count) in [
            ("fn check_heir() {}", 1),
            ("    let mut ground = 1;", 1),
            ("pub(crate) struct LetterDesk;", 1),
            ("const GATHER: u32 = 1;", 1),
            ("mod ear;", 1),
            ("fn heard() { let x = 1; }", 0),
            ("let background = 1;", 0),
            ("// fn ground", 0),
            ("use crate::heir::Text;", 0),
        ] {
            assert_eq!(findings(&[("a/src/lib.rs", line)]).len(), count, "{line}");
        }
    }

    #[test]
    fn public_items_are_described_by_a_noun_or_a_verb() {
        for (text, count) in [
            ("/// What it has.\npub struct Pool;", 1),
            ("    /// Its name.\n    #[serde(\n        default\n    )]\n    pub name: String,", 1),
            ("/// What it has.\n#[must_use]\npub(crate) fn held() {}", 0),
            ("/// A pool.\n/// What it has.\npub struct Pool;", 0),
            ("/// Itself.\npub struct Pool;", 0),
        ] {
            assert_eq!(findings(&[("a/src/lib.rs", text)]).len(), count, "{text}");
        }
    }
}
