//! Parts of the command line that all commands share: aliases of verbs, the width of the help, and
//! default exit codes and examples.

use clap::{Command, CommandFactory as _};

use super::common::HELP_TEMPLATE;
use super::{Cli, output};

/// Maximum width of the help in columns, also on wider terminals.
const COLUMNS_MAX: usize = 100;

/// Verbs with one meaning: a command named by one of them has the others as aliases.
const SYNONYMS: [&[&str]; 4] =
    [&["list", "ls"], &["show", "info", "get"], &["add", "create"], &["remove", "delete", "rm"]];
/// Verbs that remove something in a specific manner: the synonyms of `remove` are their aliases,
/// but they are not aliases of `remove`.
const REMOVALS: [&str; 3] = ["drop", "revoke", "end"];

const EXAMPLES: &str = "Examples:\n";
const EXIT_CODES: &str = "Exit codes:";
const CODES_WITH_SERVER: &str =
    "Exit codes: 0 done, 2 wrong usage or refused, 125 no server answers.";
const CODES_WITHOUT_SERVER: &str = "Exit codes: 0 done, 1 failed, 2 wrong usage.";

/// Builds the definition of the whole command line.
pub(crate) fn command() -> Command {
    let command = Cli::command();
    let (name, after) = (command.get_name().to_owned(), after_help(&command));
    let command = output::with_common_options(command.max_term_width(COLUMNS_MAX));
    command.mut_subcommands(|sub| shaped(sub, &name, &after))
}

fn after_help(command: &Command) -> String {
    command.get_after_help().map(ToString::to_string).unwrap_or_default()
}

/// Adds aliases and missing help to a command. `outer` is the text after the help of its parents.
fn shaped(command: Command, path: &str, outer: &str) -> Command {
    let path = format!("{path} {}", command.get_name());
    let command = output::with_quiet(command, path.trim_start_matches("cove "));
    let own = after_help(&command);
    let is_leaf = command.get_subcommands().next().is_none();
    let names: Vec<String> =
        command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    let mut parts = vec![own.clone()];
    if is_leaf && !own.contains(EXAMPLES) {
        parts.push(examples(outer, &path));
    }
    if !own.contains(EXIT_CODES) {
        let is_local = ["token", "version", "languages"].iter().any(|it| path.contains(it));
        let codes = if is_local { CODES_WITHOUT_SERVER } else { CODES_WITH_SERVER };
        parts.push(codes.to_owned());
    }
    parts.retain(|part| !part.is_empty());
    let outer = format!("{own}\n\n{outer}");
    command.help_template(HELP_TEMPLATE).after_help(parts.join("\n\n")).mut_subcommands(|sub| {
        let aliases = aliases(sub.get_name(), &names);
        shaped(sub, &path, &outer).visible_aliases(aliases)
    })
}

/// Returns the aliases of a command's verb, without the names of its siblings.
fn aliases(verb: &str, siblings: &[String]) -> Vec<&'static str> {
    // For files, `get` is the opposite of `put` and not a synonym of `show`.
    if verb == "get" && siblings.iter().any(|it| it == "put") {
        return Vec::new();
    }
    let means = if REMOVALS.contains(&verb) { "remove" } else { verb };
    let group = SYNONYMS.into_iter().find(|group| group.contains(&means)).unwrap_or_default();
    let is_free = |it: &&str| !siblings.iter().any(|sibling| sibling == it);
    group.iter().copied().filter(is_free).collect()
}

/// Collects the examples of one command from the help of its parents.
fn examples(outer: &str, path: &str) -> String {
    let mut found: Vec<&str> = Vec::new();
    let mut continues = false;
    for line in outer.lines() {
        let is_wanted = continues || is_example(line, path);
        continues = is_wanted && line.trim_end().ends_with(['\\', '|']);
        if is_wanted && !found.contains(&line) {
            found.push(line);
        }
    }
    match found.is_empty() {
        true => String::new(),
        false => format!("{EXAMPLES}{}", found.join("\n")),
    }
}

/// Returns whether a line of help is an example of the command at `path`.
fn is_example(line: &str, path: &str) -> bool {
    let mut rest = line;
    while let Some((_, behind)) = rest.split_once(path) {
        if line.starts_with("  ") && (behind.is_empty() || behind.starts_with([' ', ')', ';'])) {
            return true;
        }
        rest = behind;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `check` with every command and its path. Skips hidden commands, which only servers
    /// run.
    fn each(command: &mut Command, path: &str, check: &mut impl FnMut(&mut Command, &str)) {
        check(command, path);
        for sub in command.get_subcommands_mut() {
            if sub.get_name() != "help" && !sub.is_hide_set() {
                let path = format!("{path} {}", sub.get_name());
                each(sub, &path, check);
            }
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_help_is_narrow_and_has_exit_codes_and_examples() {
        let mut whole = command();
        whole.build();
        let (mut count, mut lacking, mut too_long) = (0, Vec::new(), Vec::new());
        each(&mut whole, "cove", &mut |command, path| {
            count += 1;
            let is_leaf = command.get_subcommands().all(|sub| sub.get_name() == "help");
            let text = command.render_help().to_string();
            let long = text.lines().filter(|line| line.chars().count() > COLUMNS_MAX);
            too_long.extend(long.map(|line| format!("{path}: {line}")));
            assert!(path == "cove" || text.contains(EXIT_CODES), "{path}: {text}");
            if is_leaf && !text.contains("Examples:") {
                lacking.push(path.to_owned());
            }
            // One long help makes clap use another layout for all options of the command.
            let is_long = |arg: &clap::Arg| {
                let values = arg.get_possible_values();
                arg.get_long_help().is_some() || values.iter().any(|it| it.get_help().is_some())
            };
            let long = command.get_arguments().find(|arg| is_long(arg));
            assert!(long.is_none(), "{path}: {long:?}");
        });
        assert!(count > 100, "{count}");
        assert_eq!((lacking, too_long), (Vec::<String>::new(), Vec::new()));
    }

    #[test]
    fn verbs_of_one_meaning_lead_to_one_command() {
        for (line, expected) in [
            ("exec ls", "exec list"),
            ("exec show ex_1", "exec get"),
            ("exec info ex_1", "exec get"),
            ("agent rm a", "agent delete"),
            ("agent remove a", "agent delete"),
            ("agent show a", "agent info"),
            ("session add a", "session create"),
            ("session rm ses_1", "session end"),
            ("session get ses_1", "session info"),
            ("tenant create a", "tenant add"),
            ("tenant delete a", "tenant remove"),
            ("tenant info a", "tenant show"),
            ("token rm tok_1", "token revoke"),
            ("catalog table rm a.b", "catalog table drop"),
            ("catalog grant ls", "catalog grant list"),
            ("session files rm ses_1:a", "session files rm"),
            ("session files get ses_1:a", "session files get"),
        ] {
            let line = format!("cove {line}");
            let matches = command().try_get_matches_from(line.split(' ')).expect(&line);
            let mut names = Vec::new();
            let mut matches = &matches;
            while let Some((name, inner)) = matches.subcommand() {
                names.push(name);
                matches = inner;
            }
            assert_eq!(names.join(" "), expected, "{line}");
        }
    }

    #[test]
    fn examples_are_taken_from_what_a_command_belongs_to() {
        let outer = "Text about cove a b.\n\nExamples:\n  cove a b x\n  id=$(cove a c) && cove a b \\\n    \
                     --more\n  cove a bc\n";
        let found = examples(outer, "cove a b");
        assert_eq!(found, "Examples:\n  cove a b x\n  id=$(cove a c) && cove a b \\\n    --more");
        assert_eq!(
            examples(outer, "cove a c"),
            "Examples:\n  id=$(cove a c) && cove a b \\\n    --more"
        );
        assert_eq!(examples(outer, "cove a d"), "");
    }
}
