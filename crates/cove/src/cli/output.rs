//! Output options of all commands, and the commands that use a pager, accept `--quiet` or print no
//! JSON.

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::config::ColourChoice;

const COLOUR: &str = "color";
const JSON: &str = "json";
const NO_PAGER: &str = "no_pager";
const QUIET: &str = "quiet";

/// Options of commands that follow events or show progress: a pager would delay or disturb their
/// output.
const FOLLOWING: [&str; 2] = ["follow", "wait"];

/// Help heading of the options that all commands have.
const HEADING: &str = "Output";

/// Commands whose output may be long and is read by people.
const PAGED: &[&str] = &[
    "agent info",
    "agent list",
    "audit",
    "catalog audit",
    "catalog changes",
    "catalog function list",
    "catalog function show",
    "catalog grant list",
    "catalog key list",
    "catalog maintain list",
    "catalog namespace list",
    "catalog policy list",
    "catalog principal list",
    "catalog role list",
    "catalog search",
    "catalog table columns",
    "catalog table files",
    "catalog table history",
    "catalog table list",
    "catalog table refs",
    "catalog table show",
    "catalog table snapshots",
    "catalog undrop list",
    "catalog view list",
    "catalog view show",
    "catalog warehouse list",
    "config show",
    "exec get",
    "exec list",
    "grants offers",
    "history",
    "node list",
    "session context list",
    "session files ls",
    "session list",
    "session logs",
    "session terminals",
    "template list",
    "template show",
    "tenant list",
    "tenant show",
    "token list",
];

/// Commands that report what they did, and print nothing with `--quiet`. Commands that print data,
/// such as the id of a created object, are not listed.
const REPORTING: &[&str] = &[
    "agent delete",
    "agent deploy",
    "agent update",
    "backup verify",
    "bouncer reload",
    "catalog function add",
    "catalog function remove",
    "catalog grant add",
    "catalog grant revoke",
    "catalog key remove",
    "catalog maintain cancel",
    "catalog maintain clean-metadata",
    "catalog maintain expire-snapshots",
    "catalog namespace create",
    "catalog namespace drop",
    "catalog policy remove",
    "catalog policy set",
    "catalog principal remove",
    "catalog protection off",
    "catalog protection on",
    "catalog retention reset",
    "catalog retention set",
    "catalog role add",
    "catalog role give",
    "catalog role remove",
    "catalog role take",
    "catalog table create",
    "catalog table drop",
    "catalog table register",
    "catalog table rename",
    "catalog table unregister",
    "catalog undrop purge",
    "catalog undrop restore",
    "catalog view create",
    "catalog view drop",
    "catalog view register",
    "catalog view rename",
    "catalog warehouse add",
    "catalog warehouse remove",
    "catalog warehouse set",
    "cluster init",
    "cluster join",
    "config check",
    "context add",
    "context remove",
    "context use",
    "exec cancel",
    "mcp install",
    "node drain",
    "node undrain",
    "queue drain",
    "queue pause",
    "queue resume",
    "queue retry",
    "reload",
    "restore",
    "session context delete",
    "session context interrupt",
    "session context restart",
    "session end",
    "session files put",
    "session files rm",
    "session pause",
    "session resume",
    "session stop",
    "template build",
    "template delete",
    "tenant add",
    "tenant drain",
    "tenant pause",
    "tenant reconnect",
    "tenant remove",
    "tenant resume",
    "token revoke",
];

/// Output options of a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutputChoice {
    pub(crate) colours: ColourChoice,
    /// True if the command prints only errors.
    pub(crate) is_quiet: bool,
    /// True if the output may go through a pager.
    pub(crate) is_paged: bool,
}

impl OutputChoice {
    /// Reads the output options of a parsed command line.
    pub(super) fn of(matches: &ArgMatches) -> OutputChoice {
        let (mut path, mut matches) = (Vec::new(), matches);
        while let Some((name, below)) = matches.subcommand() {
            path.push(name);
            matches = below;
        }
        let path = path.join(" ");
        let is_set = |id: &str| {
            let found = matches.try_get_one::<bool>(id).ok().flatten();
            found.copied().unwrap_or(false)
        };
        let colours = matches.try_get_one::<ColourChoice>(COLOUR).ok().flatten();
        let is_json = is_set(JSON);
        OutputChoice {
            colours: colours.copied().unwrap_or_default(),
            // `--quiet` does not suppress a document that `--json` requests.
            is_quiet: REPORTING.contains(&&*path) && is_set(QUIET) && !is_json,
            is_paged: PAGED.contains(&&*path)
                && !is_json
                && !is_set(NO_PAGER)
                && !FOLLOWING.iter().any(|id| is_set(id)),
        }
    }
}

/// Adds the options that all commands accept.
pub(super) fn with_common_options(command: Command) -> Command {
    command
        .arg(
            Arg::new(COLOUR)
                .long("color")
                .value_name("WHEN")
                .value_parser(value_parser!(ColourChoice))
                .global(true)
                .help_heading(HEADING)
                .help("When to use colours: auto, always or never [default: auto]"),
        )
        .arg(
            Arg::new(NO_PAGER)
                .long("no-pager")
                .action(ArgAction::SetTrue)
                .global(true)
                .help_heading(HEADING)
                .help("Write long lists to the terminal at once, without COVE_PAGER or PAGER"),
        )
}

/// Adds `--quiet` to a command that reports what it did.
pub(super) fn with_quiet(command: Command, path: &str) -> Command {
    if !REPORTING.contains(&path) {
        return command;
    }
    let quiet = Arg::new(QUIET)
        .long("quiet")
        .short('q')
        .action(ArgAction::SetTrue)
        .help("Print nothing but errors");
    command.arg(quiet)
}

#[cfg(test)]
mod tests {
    //! Checks of all commands: their output options, one meaning for options of one name, and the
    //! presence of all commands and options in the documentation.

    use std::collections::BTreeMap;

    use super::super::shape;
    use super::*;

    const PAGE: &str = include_str!("../../../../docs/command-line.md");

    /// Commands without `--json`, grouped by reason.
    const WITHOUT_JSON: &[(&str, &[&str])] = &[
        ("its log is JSON with `--log-format` or `log.format`", &["bouncer serve", "serve"]),
        ("prints a program, or pages, for other programs", &["completions", "docs", "man"]),
        (
            "changes a file of the caller's and prints a sentence; `context list` has the data",
            &["context add", "context remove", "context use"],
        ),
        ("changes a file of another program's; `--print` prints the JSON of it", &["mcp install"]),
    ];
    /// Commands without `--quiet`, grouped by reason.
    const WITHOUT_QUIET: &[(&str, &[&str])] = &[
        (
            "what it prints is all that it is for",
            &[
                "agent info",
                "agent list",
                "audit",
                "bouncer top",
                "catalog audit",
                "catalog changes",
                "catalog function list",
                "catalog function show",
                "catalog grant list",
                "catalog key list",
                "catalog maintain list",
                "catalog maintain show",
                "catalog namespace list",
                "catalog namespace show",
                "catalog policy list",
                "catalog policy show",
                "catalog principal list",
                "catalog protection show",
                "catalog retention show",
                "catalog role list",
                "catalog role show",
                "catalog search",
                "catalog table columns",
                "catalog table files",
                "catalog table history",
                "catalog table list",
                "catalog table refs",
                "catalog table show",
                "catalog table snapshots",
                "catalog table stats",
                "catalog undrop list",
                "catalog view list",
                "catalog view show",
                "catalog warehouse list",
                "catalog warehouse show",
                "config show",
                "context list",
                "context show",
                "doctor",
                "exec list",
                "grants check",
                "grants offers",
                "history",
                "languages",
                "node list",
                "node show",
                "queue stats",
                "session context list",
                "session files ls",
                "session info",
                "session list",
                "session logs",
                "session sql",
                "session tail",
                "template list",
                "template show",
                "tenant list",
                "tenant show",
                "token list",
                "top",
                "version",
            ],
        ),
        (
            "prints what it made and cannot be learned otherwise, and nothing else",
            &[
                "catalog key add",
                "catalog key rotate",
                "catalog principal add",
                "catalog principal rotate",
                "cluster token",
                "completions",
                "console",
                "docs",
                "man",
                "session context create",
                "session context fork",
                "session create",
                "session fork",
                "token create",
            ],
        ),
        (
            "goes on, or its output is that of somebody else",
            &[
                "bouncer serve",
                "catalog serve",
                "demo load",
                "serve",
                "session chat",
                "session exec",
                "session run",
                "session terminal",
                "worker anthropic",
            ],
        ),
        (
            "prints what is there, also after a change of it",
            &[
                "catalog namespace properties",
                "catalog table properties",
                "catalog view properties",
                "session files get",
                "session grants",
                "session terminals",
            ],
        ),
    ];
    /// Options whose meaning differs between commands, with their meanings.
    const OF_SEVERAL_KINDS: &[(&str, &str)] = &[
        ("column", "one to make, with its type; or one to hide, and how"),
        ("e2b", "a listener of `serve`; or the form of a token"),
        ("file", "files of a program, with names; or the one that is written"),
        ("limit", "entries of a list; or a limit of a tenant, by its name"),
        ("metadata", "labels of a session; or whether to list metadata files"),
        ("output", "a limit of a program's output; or whether to print that"),
        ("server", "also the address that a context is for"),
        ("set", "all grants of a session; or a property"),
        ("tenant", "of executions it is a token"),
    ];

    /// Calls `visit` with each command without subcommands and its path after `cove`. Skips hidden
    /// commands, which only servers run.
    fn each_leaf(visit: &mut impl FnMut(&str, &Command)) {
        fn below(command: &Command, path: &str, visit: &mut impl FnMut(&str, &Command)) {
            let mut is_leaf = true;
            let is_for_people = |sub: &&Command| sub.get_name() != "help" && !sub.is_hide_set();
            for sub in command.get_subcommands().filter(is_for_people) {
                is_leaf = false;
                let path = format!("{path} {}", sub.get_name());
                below(sub, path.trim_start(), visit);
            }
            if is_leaf {
                visit(path, command);
            }
        }
        let mut whole = shape::command();
        whole.build();
        below(&whole, "", visit);
    }

    fn has(command: &Command, id: &str) -> bool {
        command.get_arguments().any(|arg| arg.get_id() == id)
    }

    /// Checks that each command either has an option or is among the exceptions.
    fn check(id: &str, exceptions: &[(&str, &[&str])]) {
        let (mut lacking, mut needless) = (Vec::new(), Vec::new());
        let mut known: Vec<&str> =
            exceptions.iter().flat_map(|(_, paths)| paths.iter().copied()).collect();
        each_leaf(&mut |path, command| {
            let is_exception = known.contains(&path);
            known.retain(|it| *it != path);
            match (has(command, id), is_exception) {
                (false, false) => lacking.push(path.to_owned()),
                (true, true) => needless.push(path.to_owned()),
                _ => {}
            }
        });
        assert_eq!((lacking, needless, known), (Vec::new(), Vec::new(), Vec::new()), "--{id}");
    }

    #[test]
    fn each_command_prints_json_or_has_a_reason_not_to() {
        check(JSON, WITHOUT_JSON);
    }

    #[test]
    fn each_command_can_be_silent_or_has_a_reason_not_to() {
        check(QUIET, WITHOUT_QUIET);
    }

    #[test]
    fn lists_of_commands_name_commands() {
        let mut all = Vec::new();
        each_leaf(&mut |path, _| all.push(path.to_owned()));
        for path in PAGED.iter().chain(REPORTING) {
            assert!(all.iter().any(|it| it == path), "there is no `cove {path}`");
        }
    }

    #[test]
    fn an_option_is_one_thing_everywhere() {
        let mut kinds: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        each_leaf(&mut |path, command| {
            for arg in command.get_arguments() {
                let Some(long) = arg.get_long() else { continue };
                let short = arg.get_short().map(String::from).unwrap_or_default();
                let takes = arg.get_action().takes_values();
                let values = arg.get_value_names().filter(|_| takes).unwrap_or_default();
                let kind = format!("-{short} {}", values.join(" "));
                kinds.entry(long.to_owned()).or_default().insert(kind, path.to_owned());
            }
        });
        kinds.retain(|_, kinds| kinds.len() > 1);
        let known: Vec<&str> = OF_SEVERAL_KINDS.iter().map(|(long, _)| *long).collect();
        let found: Vec<&str> = kinds.keys().map(String::as_str).collect();
        assert_eq!(found, known, "{kinds:#?}");
    }

    #[test]
    fn the_documentation_has_each_command() {
        let mut lacking = Vec::new();
        each_leaf(&mut |path, _| {
            let (first, rest) = path.split_once(' ').unwrap_or((path, ""));
            let of_first: Vec<&str> = PAGE
                .split("\n## ")
                .filter(|it| {
                    it.lines().next().is_some_and(|it| it.contains(&format!("`cove {first}`")))
                })
                .collect();
            let section = if of_first.is_empty() { PAGE.to_owned() } else { of_first.concat() };
            let last = rest.rsplit(' ').next().unwrap_or_default();
            let is_word = |text: &str| {
                let letter = |it: char| it.is_alphanumeric() || it == '-';
                text.split(|it| !letter(it)).any(|word| word == last)
            };
            if !PAGE.contains(&format!("`cove {first}`")) || !(last.is_empty() || is_word(&section))
            {
                lacking.push(path.to_owned());
            }
        });
        assert_eq!(lacking, Vec::<String>::new());
    }

    #[test]
    fn what_a_command_line_says_of_its_output_is_read() {
        let check = |line: &str, is_quiet: bool, is_paged: bool| {
            let matches = shape::command().try_get_matches_from(line.split(' ')).expect(line);
            let choice = OutputChoice::of(&matches);
            assert_eq!((choice.is_quiet, choice.is_paged), (is_quiet, is_paged), "{line}");
        };
        check("cove exec list", false, true);
        check("cove exec ls", false, true);
        check("cove exec list --json", false, false);
        check("cove exec list --no-pager", false, false);
        check("cove --no-pager exec list", false, false);
        check("cove exec cancel ex_1", false, false);
        check("cove exec cancel -q ex_1", true, false);
        check("cove exec cancel -q --json ex_1", false, false);
        check("cove audit", false, true);
        check("cove audit --follow", false, false);
        check("cove exec get ex_1", false, true);
        check("cove exec get --wait ex_1", false, false);
        check("cove run x.py", false, false);
        let colours = |line: &str| {
            let matches = shape::command().try_get_matches_from(line.split(' ')).expect(line);
            OutputChoice::of(&matches).colours
        };
        assert_eq!(colours("cove doctor"), ColourChoice::Auto);
        assert_eq!(colours("cove --color never doctor"), ColourChoice::Never);
        assert_eq!(colours("cove doctor --color=always"), ColourChoice::Always);
        assert!(shape::command().try_get_matches_from(["cove", "--color", "x", "doctor"]).is_err());
    }
}
