//! Command-line definitions of `cove template`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::common::HELP_TEMPLATE;
use super::remote::ServerArgs;

/// Maximum length of a name with its tag.
const NAME_BYTES_MAX: usize = 160;

/// `cove template`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
A template is the base of sessions, in addition to the host's programs: files, environment,
working directory and a start command, built in steps. Steps with existing layers are not run
again. See `cove exec --help` for the choice of the server and the token.

Examples:
  cove template build examples/templates/web
  cove template build . --name tools:v2 --tag latest
  cove template list
  cove template show web
  cove session create --template web
  cove template delete web

Exit codes: 0 done, 1 the build failed, 2 wrong usage or refused, 125 no server answers."
)]
pub(crate) struct TemplateArgs {
    #[command(subcommand)]
    pub(crate) command: TemplateCommand,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Print the answer as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// Commands about templates.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum TemplateCommand {
    /// Build a folder with a template.toml: a new template, or a new build of one
    Build(TemplateBuildArgs),
    /// List templates
    List,
    /// Show a template, its builds and tags
    #[command(help_template = HELP_TEMPLATE)]
    Show {
        /// Name or id of the template
        #[arg(value_name = "NAME", value_parser = name)]
        name: String,
        /// Also print the log of its newest build
        #[arg(long)]
        logs: bool,
    },
    /// Remove templates with all their builds; sessions keep the files that they started from
    #[command(help_template = HELP_TEMPLATE)]
    Delete {
        /// Their names or ids
        #[arg(required = true, value_name = "NAME", value_parser = name)]
        names: Vec<String>,
    },
}

/// `cove template build`.
#[derive(Clone, Debug, Args)]
#[command(
    help_template = HELP_TEMPLATE,
    after_help = "\
template.toml; all lines are optional:
  name = \"web\"
  from = \"python-tools\"
  start = \"python3 -m http.server 8000\"
  ready = \"curl -sf http://127.0.0.1:8000/\"
  [[steps]]
  type = \"env\"
  values = { MODE = \"production\" }
  [[steps]]
  type = \"workdir\"
  path = \"/workspace/app\"
  [[steps]]
  type = \"copy\"
  source = \"src\"
  to = \".\"
  [[steps]]
  type = \"pip_install\"
  packages = [\"flask\"]
  [[steps]]
  type = \"run\"
  command = \"python3 -m compileall .\"

Other types are npm_install (packages, global), git_clone (url, path, branch, depth) and user.
Steps run as the sandbox's user; only /workspace and /home/user are kept. A copy step reads
the folder, without template.toml and the files that `cove agent deploy` excludes. The log
goes to standard error as it is written.

Examples:
  cove template build examples/templates/web
  cove template build . --name tools:v2 --tag latest --force

Exit codes: 0 ready, 1 the build failed, 2 wrong usage or refused, 125 no server answers."
)]
pub(crate) struct TemplateBuildArgs {
    /// The folder
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Name, or name:tag [default: that of template.toml, or of the folder]
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(crate) name: Option<String>,
    /// Additional tag for this build
    #[arg(long, value_name = "TAG", value_parser = name)]
    pub(crate) tag: Vec<String>,
    /// Run every step, also those with existing layers
    #[arg(long)]
    pub(crate) force: bool,
}

/// Parses a name, `name:tag` or an id.
pub(super) fn name(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte);
    if text.is_empty() || text.len() > NAME_BYTES_MAX || !text.bytes().all(plain) {
        return Err("names of templates are letters, digits, `_`, `-` and `.`".to_owned());
    }
    Ok(text.to_owned())
}
