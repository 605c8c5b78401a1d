//! Builds of templates, for `Template()` of E2B's clients.
//!
//! A client announces a build, uploads an archive for each `COPY` to a signed URL, sends the steps,
//! and polls the status until the build ends.

use std::sync::Arc;

use api::{BuildTemplate, TemplateBuildStatus, TemplateBuildView, TemplateLogLine, TemplateStep};
use axum::Json;
use axum::extract::{FromRequest as _, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use node::auth::TokenScope;
use node::clock::{self, rfc3339_of_ms as time};
use node::http::{CredentialBinding, UploadBody};
use serde::Deserialize;
use serde_json::{Value, json};

use super::errors::{RestError, shown};
use super::query::parameters;
use super::rest::{Answer, AuthorizedRequest, done};
use super::tokens::TokenPurpose;
use super::{E2bContext, ENVD_VERSION, cpu_count, discard};
use crate::error::SessionError;
use crate::service::templates::{
    ArchiveHash, ArchiveUpload, BASE, BuildSpec, DEFAULT_TAG, NamedBuild, check_run, check_user,
};

/// Path of uploads, which require a signature instead of a key.
pub(super) const UPLOADS: &str = "/template-uploads/";
/// Image that stands for the host's programs; the clients' default base.
const BASE_IMAGE: &str = "e2bdev/base";
/// Default directory of steps.
const HOME: &str = "/home/user";
/// Validity of an upload URL, in seconds.
const UPLOAD_S: u64 = 60 * 60;
/// Maximum number of steps in one request; the plan has the same limit.
const STEPS_MAX: usize = 256;

/// Body of an announcement.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct AnnounceBody {
    name: Option<String>,
    alias: Option<String>,
    tags: Option<Vec<String>>,
    cpu_count: Option<usize>,
    #[serde(rename = "memoryMB")]
    memory_mb: Option<u64>,
}

/// Steps of a build.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct StartBody {
    from_image: Option<String>,
    from_template: Option<String>,
    from_image_registry: Option<Value>,
    force: Option<bool>,
    steps: Option<Vec<StepBody>>,
    start_cmd: Option<String>,
    ready_cmd: Option<String>,
}

/// A step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct StepBody {
    r#type: String,
    args: Option<Vec<String>>,
    files_hash: Option<String>,
    force: Option<bool>,
}

/// Body of a request that changes tags.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TagsBody {
    /// `name:tag` of the build to tag.
    target: Option<String>,
    /// Name of the template from which tags are removed.
    name: Option<String>,
    tags: Vec<String>,
}

/// Body of an update.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct UpdateBody {
    public: Option<bool>,
}

impl AuthorizedRequest<'_> {
    pub(super) async fn announce_template(&self, body: AnnounceBody) -> Answer {
        if body.cpu_count.is_some_and(|count| count > cpu_count()) {
            let message = format!("cpuCount: there are {} here", cpu_count());
            return Err(RestError::invalid(message));
        }
        let name = body.name.or(body.alias).unwrap_or_default();
        let memory_bytes = body.memory_mb.map(|mebibytes| mebibytes.saturating_mul(1 << 20));
        let tags = body.tags.unwrap_or_default();
        let sessions = &self.face.sessions;
        let announced = sessions.templates()?.announce(self.tenant, &name, &tags, memory_bytes);
        let (template, build) = announced.await?;
        let answer = json!({
            "templateID": template.id,
            "buildID": build.id,
            "public": false,
            "names": [template.name],
            "aliases": [template.name],
            "tags": build.detail.tags,
        });
        Ok((StatusCode::ACCEPTED, Json(answer)).into_response())
    }

    /// Returns whether an archive exists, and its upload URL.
    pub(super) async fn template_files(&self, template: &str, hash: &str) -> Answer {
        self.face
            .sessions
            .templates()?
            .get(self.tenant, template)
            .await
            .map_err(|it| missing(it, template))?;
        let upload = ArchiveUpload { tenant: self.tenant, kind: ArchiveHash::Files, hash };
        let present = self.face.sessions.templates()?.archives().has(upload).await?;
        let expires_s = clock::wall_ms() / 1000 + UPLOAD_S;
        let token = self.face.keys.upload(&signed_for(hash, expires_s), self.holder);
        let origin = self.face.origin(self.headers);
        let url = format!("{origin}{UPLOADS}{hash}?expires={expires_s}&token={token}");
        Ok((StatusCode::CREATED, Json(json!({ "present": present, "url": url }))).into_response())
    }

    pub(super) async fn start_template(&self, id: &str, build: &str, body: StartBody) -> Answer {
        let sessions = &self.face.sessions;
        sessions.templates()?.build(self.tenant, id, build).await.map_err(|it| missing(it, id))?;
        let spec = spec(body)?;
        // Boxed, because it holds a whole plan.
        Box::pin(sessions.templates()?.start(self.tenant, build, spec)).await?;
        Ok(StatusCode::ACCEPTED.into_response())
    }

    pub(super) async fn template_status(&self, id: &str, build: &str) -> Answer {
        let mut from = 0;
        for (name, value) in parameters(self.uri.query().unwrap_or_default()) {
            if name == "logsOffset" {
                from = value.parse().map_err(|_| RestError::invalid("logsOffset: not a number"))?;
            }
        }
        let sessions = &self.face.sessions;
        let log = sessions.templates()?.log(self.tenant, id, build, from).await;
        let log = log.map_err(|it| missing(it, id))?;
        let view = sessions.templates()?.build(self.tenant, id, build).await?;
        // The state from before the lines were read: a final state then implies that all lines were
        // read.
        Ok(Json(status(&view, log.status, &log.lines)).into_response())
    }

    pub(super) async fn templates(&self) -> Answer {
        let sessions = &self.face.sessions;
        let usual = sessions.usual_sizes();
        let all = sessions.templates()?.named_builds(self.tenant).await?;
        let all: Vec<Value> = all.iter().map(|named| listed(named, usual)).collect();
        Ok(Json(all).into_response())
    }

    pub(super) async fn template(&self, id: &str) -> Answer {
        let sessions = &self.face.sessions;
        let named = sessions
            .templates()?
            .named_build(self.tenant, id)
            .await
            .map_err(|it| missing(it, id))?;
        let usual = sessions.usual_sizes();
        let builds = sessions.templates()?.builds(self.tenant, id).await?;
        let build = |build: &TemplateBuildView| {
            json!({
                "buildID": build.id,
                "status": build.status,
                "createdAt": build.created_at,
                "updatedAt": build.finished_at.as_ref().unwrap_or(&build.created_at),
                "finishedAt": build.finished_at,
                "cpuCount": cpu_count(),
                "memoryMB": usual.0 >> 20,
                "diskSizeMB": usual.1 >> 20,
                "envdVersion": ENVD_VERSION,
            })
        };
        let mut answer = listed(&named, usual);
        answer["builds"] = builds.iter().map(build).collect();
        Ok(Json(answer).into_response())
    }

    pub(super) async fn template_alias(&self, alias: &str) -> Answer {
        let found = self.face.sessions.templates()?.get(self.tenant, alias).await;
        let template = found.map_err(|it| missing(it, alias))?;
        Ok(Json(json!({ "templateID": template.id, "public": false })).into_response())
    }

    pub(super) async fn update_template(&self, id: &str, body: UpdateBody) -> Answer {
        let template = self.face.sessions.templates()?.get(self.tenant, id).await;
        let template = template.map_err(|it| missing(it, id))?;
        if body.public == Some(true) {
            let message = "public: a template is its tenant's alone here";
            return Err(RestError::invalid(message));
        }
        Ok(Json(json!({ "names": [template.name] })).into_response())
    }

    pub(super) async fn tag_template(&self, body: TagsBody) -> Answer {
        let target = body.target.unwrap_or_default();
        let (name, tag) = target.split_once(':').unwrap_or((&target, DEFAULT_TAG));
        let sessions = &self.face.sessions;
        let tagged = sessions.templates()?.tag(self.tenant, name, tag, &body.tags).await;
        let build = tagged.map_err(|it| missing(it, &target))?;
        let answer = json!({ "buildID": build.id, "tags": body.tags });
        Ok((StatusCode::CREATED, Json(answer)).into_response())
    }

    pub(super) async fn untag_template(&self, body: TagsBody) -> Answer {
        let name = body.name.unwrap_or_default();
        let untagged = self.face.sessions.templates()?.untag(self.tenant, &name, &body.tags).await;
        untagged.map_err(|it| missing(it, &name))?;
        done()
    }

    pub(super) async fn template_tags(&self, id: &str) -> Answer {
        let named = self.face.sessions.templates()?.named_build(self.tenant, id).await;
        let named = named.map_err(|it| missing(it, id))?;
        let tags: Vec<Value> = named
            .tags
            .iter()
            .map(|tag| {
                let created_at = time(tag.created_ms);
                json!({ "tag": tag.tag, "buildID": tag.build, "createdAt": created_at })
            })
            .collect();
        Ok(Json(tags).into_response())
    }
}

impl E2bContext {
    /// Returns the server's base URL as this caller reached it, for URLs in answers.
    fn origin(&self, headers: &HeaderMap) -> String {
        if let Some(origin) = &self.config.url {
            return origin.trim_end_matches('/').to_owned();
        }
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let is_tls = text("x-forwarded-proto").is_some_and(|it| it.eq_ignore_ascii_case("https"));
        let scheme = if is_tls { "https" } else { "http" };
        format!("{scheme}://{}", text(header::HOST.as_str()).unwrap_or(super::LOCALHOST))
    }
}

/// Receives an archive at a signed URL.
pub(super) async fn upload(face: &Arc<E2bContext>, request: Request) -> Response {
    let hash = request.uri().path().strip_prefix(UPLOADS).unwrap_or_default().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let is_put = request.method() == axum::http::Method::PUT;
    let binding = CredentialBinding::of(request.extensions());
    let body = match UploadBody::from_request(request, &()).await {
        Ok(body) => body,
        Err(error) => return RestError::from(error).into_response(),
    };
    let tenant = if is_put { tenant_of(face, &hash, &query, &binding) } else { None };
    let Some(tenant) = tenant else {
        discard(body).await;
        return RestError::unauthenticated().into_response();
    };
    let upload = ArchiveUpload { tenant: &tenant, kind: ArchiveHash::Files, hash: &hash };
    let kept = match face.sessions.templates() {
        Ok(templates) => templates.archives().put(upload, body).await,
        Err(error) => Err(error),
    };
    match kept {
        Ok(_bytes) => StatusCode::OK.into_response(),
        Err(error) => RestError::from(error).into_response(),
    }
}

/// Returns the tenant for which a URL was signed, if the URL is still valid.
fn tenant_of(
    face: &E2bContext,
    hash: &str,
    query: &str,
    binding: &CredentialBinding,
) -> Option<Arc<str>> {
    let query = parameters(query);
    let value = |wanted: &str| {
        query.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
    };
    let expires_s: u64 = value("expires")?.parse().ok()?;
    let signed = signed_for(hash, expires_s);
    let holder = face.keys.holder(TokenPurpose::Upload, &signed, value("token")?)?;
    let is_late = clock::wall_ms() / 1000 > expires_s;
    let principal = face.tokens.principal(holder)?;
    if is_late || !principal.scopes.has(TokenScope::Sessions) {
        return None;
    }
    binding.bind(face.tokens.revocation(&principal));
    Some(principal.tenant)
}

/// Returns the text for which an upload's token is made.
fn signed_for(hash: &str, expires_s: u64) -> String {
    format!("{hash}@{expires_s}")
}

/// Returns an error about a template in E2B's wording.
fn missing(error: SessionError, name: &str) -> RestError {
    match error {
        SessionError::NotFound(_) => {
            let message = format!("template '{}' not found", shown(name));
            RestError::new(StatusCode::NOT_FOUND, message)
        }
        other => other.into(),
    }
}

/// Translates a build request.
///
/// # Errors
/// The unsupported part, with the reason.
fn spec(body: StartBody) -> Result<BuildSpec, RestError> {
    if body.from_image_registry.is_some() {
        let message = "fromImageRegistry: images are not pulled here; begin with the base image or \
                       with a template";
        return Err(RestError::invalid(message));
    }
    let image = body.from_image.as_deref().filter(|image| !image.is_empty());
    let is_base = |image: &str| image.split(':').next() == Some(BASE_IMAGE) || image == BASE;
    if let Some(image) = image.filter(|image| !is_base(image)) {
        let message = format!(
            "fromImage: `{}` is an image, and images are not pulled here: sandboxes have the \
             programs of the host; begin with `{BASE_IMAGE}` (`from_base_image()`) or with a \
             template (`from_template()`)",
            shown(image)
        );
        return Err(RestError::invalid(message));
    }
    let given = body.steps.unwrap_or_default();
    if given.len() > STEPS_MAX {
        return Err(RestError::invalid(format!("steps: more than {STEPS_MAX}")));
    }
    let forced = |(index, step): (usize, &StepBody)| {
        step.force.unwrap_or(false).then(|| u32::try_from(index + 1).unwrap_or(u32::MAX))
    };
    let forced = given.iter().enumerate().filter_map(forced).collect();
    let is_dockerfile = begins_as_dockerfile(&given);
    let mut steps = Vec::with_capacity(given.len());
    for (index, step) in given.into_iter().enumerate() {
        let skipped = is_dockerfile && index < 2;
        steps.push(match skipped {
            // A step without effect preserves the numbers of later steps.
            true => TemplateStep::User { name: "user".to_owned() },
            false => step_of(step, index)?,
        });
    }
    let some = |text: Option<String>| text.filter(|text| !text.is_empty());
    Ok(BuildSpec {
        request: BuildTemplate {
            from: some(body.from_template),
            steps,
            start: some(body.start_cmd),
            ready: some(body.ready_cmd).map(ready_command),
            force: body.force.unwrap_or(false),
            ..BuildTemplate::default()
        },
        archives: ArchiveHash::Files,
        forced,
        expands: true,
        workdir: Some(HOME.to_owned()),
    })
}

/// Returns a ready command that works in a sandbox: the clients' `wait_for_port` queries sockets
/// over netlink, which sandboxes lack, so it is replaced by a connection attempt.
fn ready_command(command: String) -> String {
    let port = command.strip_prefix("[ -n \"$(ss -Htuln sport = :");
    let port = port.and_then(|rest| rest.strip_suffix(")\" ]")).map(str::parse::<u16>);
    match port {
        Some(Ok(port)) => format!("(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null"),
        Some(Err(_)) | None => command,
    }
}

/// Returns whether steps begin with the clients' default prologue for a Dockerfile, which sets root
/// and `/`. In Cove these steps run as the user, in its home.
fn begins_as_dockerfile(steps: &[StepBody]) -> bool {
    let is = |step: Option<&StepBody>, kind: &str, arg: &str| {
        let args = |step: &StepBody| step.args.as_deref().is_some_and(|args| args == [arg]);
        step.is_some_and(|step| step.r#type == kind && args(step))
    };
    is(steps.first(), "USER", "root") && is(steps.get(1), "WORKDIR", "/")
}

fn step_of(step: StepBody, index: usize) -> Result<TemplateStep, RestError> {
    let field = format!("steps[{index}]");
    let args = step.args.unwrap_or_default();
    let arg = |at: usize| args.get(at).cloned().unwrap_or_default();
    match step.r#type.as_str() {
        "RUN" => {
            check_run(&arg(0), &arg(1), &field)?;
            Ok(TemplateStep::Run { command: arg(0) })
        }
        "ENV" => {
            let pairs = args.chunks(2).map(|pair| match pair {
                [name, value] => Ok((name.clone(), value.clone())),
                _ => Err(RestError::invalid(format!("{field}: a variable has no value"))),
            });
            Ok(TemplateStep::Env { values: pairs.collect::<Result<_, _>>()? })
        }
        "WORKDIR" => Ok(TemplateStep::Workdir { path: arg(0) }),
        "USER" => Ok(TemplateStep::User { name: arg(0) }),
        "COPY" => {
            check_user(&arg(2), &field)?;
            let source = arg(0);
            let source = source.strip_prefix("./").unwrap_or(&source);
            Ok(TemplateStep::Copy {
                archive: step.files_hash.unwrap_or_default(),
                source: if source.is_empty() { ".".to_owned() } else { source.to_owned() },
                to: arg(1),
                mode: Some(arg(3)).filter(|mode| !mode.is_empty()),
            })
        }
        other => {
            let message = format!("{field}.type: there is no step `{}` here", shown(other));
            Err(RestError::invalid(message))
        }
    }
}

/// Returns the state of a build, with lines of its log.
fn status(
    view: &TemplateBuildView,
    status: TemplateBuildStatus,
    lines: &[TemplateLogLine],
) -> Value {
    let mut answer = json!({
        "templateID": view.template,
        "buildID": view.id,
        "status": status,
        "logs": [],
        "logEntries": lines.iter().map(log_entry).collect::<Vec<_>>(),
    });
    if let Some(failure) = view.failure.as_ref().filter(|_| status == TemplateBuildStatus::Error) {
        answer["reason"] = json!({ "message": failure.message });
        if let Some(step) = failure.step {
            answer["reason"]["step"] = json!(step.to_string());
        }
    }
    answer
}

fn log_entry(line: &TemplateLogLine) -> Value {
    let mut entry =
        json!({ "timestamp": time(line.at_ms), "message": line.message, "level": line.level });
    if let Some(step) = line.step {
        entry["step"] = json!(step.to_string());
    }
    entry
}

/// Returns a template's list entry; `usual` is the default memory and disk of its sandboxes.
fn listed(named: &NamedBuild, usual: (u64, u64)) -> Value {
    let NamedBuild { template, build, builds, .. } = named;
    let status = build.as_ref().map_or(TemplateBuildStatus::Waiting, |build| build.status);
    let memory = build.as_ref().and_then(|build| build.detail.memory_bytes).unwrap_or(usual.0);
    json!({
        "templateID": template.id,
        "buildID": build.as_ref().map(|build| build.id.as_str()).unwrap_or_default(),
        "cpuCount": cpu_count(),
        "memoryMB": memory >> 20,
        "diskSizeMB": usual.1 >> 20,
        "public": false,
        "aliases": [template.name],
        "names": [template.name],
        "createdAt": time(template.created_ms),
        "updatedAt": time(template.updated_ms),
        "createdBy": null,
        "lastSpawnedAt": null,
        "spawnCount": 0,
        "buildCount": builds,
        "envdVersion": ENVD_VERSION,
        "buildStatus": status,
    })
}

#[cfg(test)]
mod tests {
    //! Requests of the clients' builders, and their translation.

    use super::*;

    fn of(value: Value) -> Result<BuildSpec, RestError> {
        spec(serde_json::from_value(value).unwrap())
    }

    fn steps(steps: Value) -> Result<BuildSpec, RestError> {
        of(json!({ "fromImage": "e2bdev/base", "steps": steps, "force": false }))
    }

    #[test]
    fn steps_are_read_as_the_builders_write_them() {
        let spec = steps(json!([
            { "type": "ENV", "args": ["A", "1", "B", "$A"], "force": false },
            { "type": "COPY", "args": ["./a", "b/", "", "0755"], "filesHash": "x", "force": true },
            { "type": "RUN", "args": ["pip install flask", "root"] },
        ]));
        let spec = spec.unwrap();
        assert_eq!(spec.forced, [2]);
        let values = [("A", "1"), ("B", "$A")].map(|(name, it)| (name.to_owned(), it.to_owned()));
        let expected = [
            TemplateStep::Env { values: values.into() },
            TemplateStep::Copy {
                archive: "x".to_owned(),
                source: "a".to_owned(),
                to: "b/".to_owned(),
                mode: Some("0755".to_owned()),
            },
            TemplateStep::Run { command: "pip install flask".to_owned() },
        ];
        assert_eq!(spec.request.steps, expected);
    }

    #[test]
    fn ports_are_waited_for_without_netlink() {
        for (command, expected) in [
            (
                "[ -n \"$(ss -Htuln sport = :8000)\" ]",
                "(exec 3<>/dev/tcp/127.0.0.1/8000) 2>/dev/null",
            ),
            (
                "[ -n \"$(ss -Htuln sport = :x; rm y)\" ]",
                "[ -n \"$(ss -Htuln sport = :x; rm y)\" ]",
            ),
            ("curl -sf http://127.0.0.1", "curl -sf http://127.0.0.1"),
        ] {
            assert_eq!(ready_command(command.to_owned()), expected);
        }
    }

    #[test]
    fn what_there_is_not_is_refused() {
        let root = json!({ "type": "USER", "args": ["root"] });
        let at_root = json!({ "type": "WORKDIR", "args": ["/"] });
        assert!(steps(json!([root, at_root])).is_ok(), "the beginning of a Dockerfile");
        for body in [
            json!({ "fromImage": "python:3" }),
            json!({ "fromImage": "e2bdev/base", "fromImageRegistry": { "type": "aws" } }),
            json!({ "steps": [{ "type": "RUN", "args": ["mkdir /app", "root"] }] }),
            json!({ "steps": [{ "type": "RUN", "args": ["apt-get install -y vim", "root"] }] }),
            json!({ "steps": [{ "type": "COPY", "args": ["a", "b", "root"], "filesHash": "x" }] }),
            json!({ "steps": [{ "type": "ENV", "args": ["A"] }] }),
            json!({ "steps": [{ "type": "EXPOSE", "args": ["80"] }] }),
        ] {
            assert!(of(body.clone()).is_err(), "{body}");
        }
    }
}
