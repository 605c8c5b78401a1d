//! Templates: what sandboxes start from, built by steps.

use std::collections::BTreeMap;

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Body of `POST /v1/templates`: a new template, or a new build of one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct BuildTemplate {
    /// Name, or `name:tag`: letters, digits, `_`, `-` and `.`, 1 to 64 of each; unique for its
    /// tenant.
    pub name: String,
    /// Tags that name this build when it is ready, beside the one of `name`; `default` when there
    /// is none.
    pub tags: Vec<String>,
    /// Template to begin with: a name, `name:tag`, or an id. Left out, or `base`: the programs of
    /// the host, and no files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Steps, in their order.
    pub steps: Vec<TemplateStep>,
    /// Command that each new session runs in the background.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// Command that succeeds when what `start` runs is ready: it is repeated until then, and the
    /// session is answered only afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// Run every step, also those whose layers are there.
    pub force: bool,
}

/// Step of a template. All of them run as the sandbox's user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case", tag = "type", deny_unknown_fields)]
pub enum TemplateStep {
    /// Runs a command with `bash`.
    Run {
        /// The command.
        command: String,
    },
    /// Sets variables for the steps behind it, and for sessions.
    Env {
        /// Variables.
        values: BTreeMap<String, String>,
    },
    /// Sets the working directory of the steps behind it, and of commands in sessions. It is made.
    Workdir {
        /// Absolute path below `/workspace` or `/home/user`, or one relative to the directory
        /// before.
        path: String,
    },
    /// Sets the user, of whom there is one: `user`.
    User {
        /// Name of the user.
        name: String,
    },
    /// Unpacks files of an archive that was uploaded.
    Copy {
        /// SHA-256 of the archive, in hexadecimal digits, by which it was uploaded.
        archive: String,
        /// Path or pattern of what is taken from the archive; everything when it is `.`.
        #[serde(default = "everything")]
        source: String,
        /// Destination: a directory when it ends with `/`, when it is one, or when several things
        /// are copied.
        to: String,
        /// Mode of files in octal digits, in place of that of the archive.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<String>,
    },
    /// Installs packages of Python with `pip`, for the sandbox's user.
    PipInstall {
        /// Packages, or options of `pip install`; the working directory itself when there is none.
        #[serde(default)]
        packages: Vec<String>,
    },
    /// Installs packages of Node with `npm`.
    NpmInstall {
        /// Packages; those of `package.json` in the working directory when there is none.
        #[serde(default)]
        packages: Vec<String>,
        /// Install them for the sandbox's user rather than in the working directory.
        #[serde(default)]
        global: bool,
    },
    /// Clones a repository.
    GitClone {
        /// Address of the repository.
        url: String,
        /// Directory; named for the repository when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        /// Branch or tag.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        branch: Option<String>,
        /// Number of commits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        depth: Option<u32>,
    },
}

fn everything() -> String {
    ".".to_owned()
}

/// State of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TemplateBuildStatus {
    /// Announced; its steps are not known yet.
    Waiting,
    /// Steps are running.
    Building,
    /// Sessions can start from it.
    Ready,
    /// The build failed.
    Error,
}

impl TemplateBuildStatus {
    /// The name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            TemplateBuildStatus::Waiting => "waiting",
            TemplateBuildStatus::Building => "building",
            TemplateBuildStatus::Ready => "ready",
            TemplateBuildStatus::Error => "error",
        }
    }
}

/// A template.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "Template"))]
pub struct TemplateView {
    /// Names it for ever: `tpl_…`.
    pub id: String,
    /// Tenant that owns it.
    pub tenant: String,
    /// Name.
    pub name: String,
    /// Builds that have a name, by their tags. Sessions get `default` unless they name another one.
    pub tags: BTreeMap<String, String>,
    /// Newest build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<TemplateBuildView>,
    /// Number of its builds that are kept.
    pub builds: u64,
    /// When it was created (RFC 3339, milliseconds, UTC).
    pub created_at: String,
    /// When it was changed last.
    pub updated_at: String,
}

/// Answer of `GET /v1/templates`: by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct TemplateList {
    /// The templates.
    pub templates: Vec<TemplateView>,
}

/// A build of a template.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema), schemars(rename = "TemplateBuild"))]
pub struct TemplateBuildView {
    /// Names it for ever: a UUID.
    pub id: String,
    /// Id of its template.
    pub template: String,
    /// State.
    pub status: TemplateBuildStatus,
    /// Steps that made a layer, or took one that was there.
    pub steps: Vec<TemplateStepResult>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<TemplateFailure>,
    /// Names of the variables that it sets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Working directory of commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Command that each new session runs in the background.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// Command that succeeds when that is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// Bytes of its layers.
    pub bytes: u64,
    /// When it was created.
    pub created_at: String,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<String>,
}

/// Result of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct TemplateStepResult {
    /// Number of the step, from 1.
    pub step: u32,
    /// The step as it is shown: `RUN pip install flask`.
    pub command: String,
    /// True if its layer was there already.
    pub cached: bool,
    /// Milliseconds that it took.
    pub took_ms: u64,
}

/// Reason why a build failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct TemplateFailure {
    /// Sentence with the step, its command and the end of what it wrote.
    pub message: String,
    /// Number of the step; none when it was no step that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
}

/// Answer of `GET /v1/templates/{name}/builds`: newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct TemplateBuildList {
    /// The builds.
    pub builds: Vec<TemplateBuildView>,
}

/// Line of the log of a build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct TemplateLogLine {
    /// Number of the line, from 0.
    pub index: u64,
    /// When it was written (milliseconds since 1970).
    pub at_ms: u64,
    /// `info` or `error`.
    pub level: String,
    /// Number of its step; none when it belongs to no step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// Text.
    pub message: String,
}

/// Answer of `GET /v1/templates/{name}/builds/{build}/logs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct TemplateLogList {
    /// This page.
    pub lines: Vec<TemplateLogLine>,
    /// State of the build when they were read.
    pub status: TemplateBuildStatus,
}

/// Body of `POST /v1/templates/{name}/tags`: names a build by more tags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TagTemplate {
    /// Build to be named, by its id or by a tag that it has.
    pub build: String,
    /// Tags.
    pub tags: Vec<String>,
}

/// Answer of `PUT /v1/template-files/{archive}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct TemplateArchive {
    /// SHA-256 of the archive.
    pub archive: String,
    /// Bytes.
    pub bytes: u64,
}
