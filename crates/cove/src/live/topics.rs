//! The table of topics, with names and routes. Pure.

use node::http::HttpError;
use serde_json::{Map, Value};

use super::parameters::TopicParameters;

/// Records of a list that a topic follows: the newest ones that match its filter.
const RECORDS_MAX: usize = 100;

/// Steps of the history in one event.
const HISTORY_STEPS: usize = 3;

/// Topic that can be followed.
pub(super) trait LiveTopic: Sync {
    /// Name of the topic in messages.
    fn name(&self) -> &'static str;

    /// Returns the source for a subscription.
    ///
    /// # Errors
    /// If a parameter is missing, unknown or invalid. The route itself rejects what only it can
    /// check.
    fn source(&self, parameters: TopicParameters) -> Result<TopicSource, HttpError>;
}

/// Route that a topic reads, and its conversion to events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TopicSource {
    /// Server-sent events, each of which becomes one event.
    Events {
        target: String,
        /// True if an event with the name `error` gives the reason for the end of the stream.
        has_end_reason: bool,
    },
    /// List that is read when its service announces a change: new and changed records become
    /// events.
    Changed {
        /// With a query.
        target: String,
        /// Field of the list in its document. Records are identified by their `id`.
        list: &'static str,
        record: RecordRoute,
        service: FollowedService,
    },
    /// List of numbered records that is read from the last known one: each record becomes an event.
    Numbered {
        /// With a query, to which `after` is added.
        target: String,
        /// Address of a list that begins with the newest record.
        newest: &'static str,
        list: &'static str,
        /// Number of the last record that the client has; none to start with the newest one.
        after: Option<u64>,
    },
    /// Document that is read each second: each read becomes an event.
    Document { target: String },
    /// Document that is read when a service announces a change, and occasionally for changes that
    /// time causes; each second if no service is given. A changed document becomes an event.
    Summary { target: String, service: Option<FollowedService> },
}

/// Route to one record of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordRoute {
    /// The list, with the parameter `id`.
    Filter,
    /// A document below this path.
    Document(&'static str),
    /// None: the list has a filter that a single document would not apply.
    List,
}

/// Service whose change feed triggers reads of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FollowedService {
    Executions,
    Sessions,
}

/// All topics.
pub(super) static TOPICS: [&dyn LiveTopic; 12] = [
    &ExecutionsTopic,
    &ExecutionEventsTopic,
    &SessionsTopic,
    &SessionEventsTopic,
    &SessionFilesTopic,
    &AuditTopic,
    &TenantsTopic,
    &TenantListTopic,
    &QueueTopic,
    &SandboxesTopic,
    &HistoryTopic,
    &CatalogChangesTopic,
];

/// Returns the source for a subscription to a topic.
///
/// # Errors
/// If the topic does not exist, or a parameter is invalid.
pub(super) fn source(
    topic: &str,
    parameters: Map<String, Value>,
) -> Result<TopicSource, HttpError> {
    match TOPICS.iter().find(|it| it.name() == topic) {
        Some(found) => found.source(TopicParameters::new(parameters)),
        None => {
            let names: Vec<_> = TOPICS.iter().map(|it| it.name()).collect();
            let topic: String = topic.chars().take(64).collect();
            let message = format!("unknown topic {topic:?}; there are {}", names.join(", "));
            Err(HttpError::invalid(message).at("topic"))
        }
    }
}

/// Records of executions that are new or have changed.
struct ExecutionsTopic;

impl LiveTopic for ExecutionsTopic {
    fn name(&self) -> &'static str {
        "executions"
    }

    fn source(&self, parameters: TopicParameters) -> Result<TopicSource, HttpError> {
        let names = ["state", "language", "label", "verdict", "text", "tenant"];
        let limit = format!("limit={RECORDS_MAX}");
        let target = parameters.into_target("/v1/executions", &limit, &names)?;
        let (record, service) = (RecordRoute::Filter, FollowedService::Executions);
        Ok(TopicSource::Changed { target, list: "executions", record, service })
    }
}

/// Events of one execution.
struct ExecutionEventsTopic;

impl LiveTopic for ExecutionEventsTopic {
    fn name(&self) -> &'static str {
        "execution.events"
    }

    fn source(&self, mut parameters: TopicParameters) -> Result<TopicSource, HttpError> {
        let path = format!("/v1/executions/{}/events", parameters.segment("execution")?);
        let target = parameters.into_target(&path, "", &["after"])?;
        Ok(TopicSource::Events { target, has_end_reason: false })
    }
}

/// Records of sessions that are new or have changed.
struct SessionsTopic;

impl LiveTopic for SessionsTopic {
    fn name(&self) -> &'static str {
        "sessions"
    }

    fn source(&self, parameters: TopicParameters) -> Result<TopicSource, HttpError> {
        let limit = format!("limit={RECORDS_MAX}");
        let target = parameters.into_target("/v1/sessions", &limit, &["state", "agent"])?;
        let record = match target.contains('&') {
            true => RecordRoute::List,
            false => RecordRoute::Document("/v1/sessions/"),
        };
        let service = FollowedService::Sessions;
        Ok(TopicSource::Changed { target, list: "sessions", record, service })
    }
}

/// Events of one session.
struct SessionEventsTopic;

impl LiveTopic for SessionEventsTopic {
    fn name(&self) -> &'static str {
        "session.events"
    }

    fn source(&self, mut parameters: TopicParameters) -> Result<TopicSource, HttpError> {
        let path = format!("/v1/sessions/{}/events", parameters.segment("session")?);
        let target = parameters.into_target(&path, "", &["after", "types"])?;
        Ok(TopicSource::Events { target, has_end_reason: false })
    }
}

/// Changes of a session's files.
struct SessionFilesTopic;

impl LiveTopic for SessionFilesTopic {
    fn name(&self) -> &'static str {
        "session.files"
    }

    fn source(&self, mut parameters: TopicParameters) -> Result<TopicSource, HttpError> {
        let path = format!("/v1/sessions/{}/watch", parameters.segment("session")?);
        let target = parameters.into_target(&path, "", &["path", "recursive"])?;
        Ok(TopicSource::Events { target, has_end_reason: false })
    }
}

/// Records of the gateway's audit.
struct AuditTopic;

impl LiveTopic for AuditTopic {
    fn name(&self) -> &'static str {
        "audit"
    }

    fn source(&self, mut parameters: TopicParameters) -> Result<TopicSource, HttpError> {
        let after = parameters.take("after")?.map(|text| {
            let wrong = |_| HttpError::invalid("must be the number of a record").at("after");
            text.parse().map_err(wrong)
        });
        let names = ["holder", "tenant", "grant", "event", "outcome", "text"];
        let target = parameters.into_target("/v1/audit", "limit=200", &names)?;
        // Without the filter: it would search for a matching record, which may be far back.
        let newest = "/v1/audit?limit=1&order=desc";
        Ok(TopicSource::Numbered { target, newest, list: "records", after: after.transpose()? })
    }
}

/// Statistics of all tenants of the bouncer.
struct TenantsTopic;

impl LiveTopic for TenantsTopic {
    fn name(&self) -> &'static str {
        "tenants"
    }

    fn source(&self, parameters: TopicParameters) -> Result<TopicSource, HttpError> {
        let target = parameters.into_target("/v1/tenants/stats", "", &[])?;
        Ok(TopicSource::Document { target })
    }
}

/// Definitions of all tenants of the bouncer, with their state.
struct TenantListTopic;

impl LiveTopic for TenantListTopic {
    fn name(&self) -> &'static str {
        "tenants.list"
    }

    fn source(&self, parameters: TopicParameters) -> Result<TopicSource, HttpError> {
        let target = parameters.into_target("/v1/tenants", "", &[])?;
        Ok(TopicSource::Summary { target, service: None })
    }
}

/// Figures of the queue.
struct QueueTopic;

impl LiveTopic for QueueTopic {
    fn name(&self) -> &'static str {
        "queue"
    }

    fn source(&self, parameters: TopicParameters) -> Result<TopicSource, HttpError> {
        let target = parameters.into_target("/v1/queue", "", &["all"])?;
        Ok(TopicSource::Summary { target, service: Some(FollowedService::Executions) })
    }
}

/// Number of sandboxes of sessions.
struct SandboxesTopic;

impl LiveTopic for SandboxesTopic {
    fn name(&self) -> &'static str {
        "sandboxes"
    }

    fn source(&self, parameters: TopicParameters) -> Result<TopicSource, HttpError> {
        let target = parameters.into_target("/v1/sandboxes", "", &[])?;
        Ok(TopicSource::Summary { target, service: Some(FollowedService::Sessions) })
    }
}

/// Measurements of the latest steps of the server's history.
struct HistoryTopic;

impl LiveTopic for HistoryTopic {
    fn name(&self) -> &'static str {
        "history"
    }

    fn source(&self, parameters: TopicParameters) -> Result<TopicSource, HttpError> {
        // More than the last step, so that a client that missed some receives them again.
        let steps = format!("steps={HISTORY_STEPS}");
        let target =
            parameters.into_target("/v1/history", &steps, &["series", "tenant", "step"])?;
        Ok(TopicSource::Document { target })
    }
}

/// Changes of a warehouse.
struct CatalogChangesTopic;

impl LiveTopic for CatalogChangesTopic {
    fn name(&self) -> &'static str {
        "catalog.changes"
    }

    fn source(&self, mut parameters: TopicParameters) -> Result<TopicSource, HttpError> {
        let prefix = parameters.segment("warehouse")?;
        let after = parameters.take("after")?.unwrap_or_else(|| "latest".to_owned());
        let fixed = format!("after={}", crate::percent::escaped(&after));
        let path = format!("/catalog/management/v1/{prefix}/changes");
        let target = parameters.into_target(&path, &fixed, &["namespace", "table"])?;
        Ok(TopicSource::Events { target, has_end_reason: true })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_subscription_is_one_route() {
        let events = |target: &str| {
            Ok(TopicSource::Events { target: target.to_owned(), has_end_reason: false })
        };
        let sessions = |filter: &str, record| TopicSource::Changed {
            target: format!("/v1/sessions?limit=100{filter}"),
            list: "sessions",
            record,
            service: FollowedService::Sessions,
        };
        for (topic, parameters, expected) in [
            (
                "session.events",
                json!({ "session": "ses_1", "after": 7, "types": ["text", "done"] }),
                events("/v1/sessions/ses_1/events?after=7&types=text%2Cdone"),
            ),
            (
                "session.files",
                json!({ "session": "a/../b?c", "path": "/workspace/a b", "recursive": true }),
                events(
                    "/v1/sessions/a%2F..%2Fb%3Fc/watch?path=%2Fworkspace%2Fa%20b&recursive=true",
                ),
            ),
            (
                "execution.events",
                json!({ "execution": "ex_1", "after": null }),
                events("/v1/executions/ex_1/events"),
            ),
            (
                "audit",
                json!({ "after": 3, "text": "a&tenant=b" }),
                Ok(TopicSource::Numbered {
                    target: "/v1/audit?limit=200&text=a%26tenant%3Db".to_owned(),
                    newest: "/v1/audit?limit=1&order=desc",
                    list: "records",
                    after: Some(3),
                }),
            ),
            (
                "executions",
                json!({ "language": "bash" }),
                Ok(TopicSource::Changed {
                    target: "/v1/executions?limit=100&language=bash".to_owned(),
                    list: "executions",
                    record: RecordRoute::Filter,
                    service: FollowedService::Executions,
                }),
            ),
            ("sessions", json!({}), Ok(sessions("", RecordRoute::Document("/v1/sessions/")))),
            ("sessions", json!({ "agent": "a" }), Ok(sessions("&agent=a", RecordRoute::List))),
            (
                "queue",
                json!({ "all": true }),
                Ok(TopicSource::Summary {
                    target: "/v1/queue?all=true".to_owned(),
                    service: Some(FollowedService::Executions),
                }),
            ),
            (
                "history",
                json!({ "series": ["cove_http_requests", "cove_bouncer_*"], "step": "5s" }),
                Ok(TopicSource::Document {
                    target: "/v1/history?steps=3&series=cove_http_requests%2Ccove_bouncer_%2A\
                             &step=5s"
                        .to_owned(),
                }),
            ),
            ("history", json!({ "window": "1h" }), Err("window")),
            ("tenants", json!({ "tenant": "x" }), Err("tenant")),
            ("session.events", json!({}), Err("session")),
            ("session.events", json!({ "session": ".." }), Err("session")),
            ("session.events", json!({ "session": "s", "attach": true }), Err("attach")),
            ("session.events", json!({ "session": { "id": 1 } }), Err("session")),
            ("executions", json!({ "state": [["queued"]] }), Err("state")),
            ("audit", json!({ "after": -1 }), Err("after")),
            ("terminals", json!({}), Err("topic")),
        ] {
            let Value::Object(fields) = parameters.clone() else { panic!("{parameters}") };
            let found = source(topic, fields);
            let found = found.map_err(|error| error.detail().field.clone().unwrap_or_default());
            let expected = expected.map_err(str::to_owned);
            assert_eq!(found, expected, "{topic} {parameters}");
        }
    }

    #[test]
    fn names_of_topics_are_unique() {
        for (index, topic) in TOPICS.iter().enumerate() {
            let first = TOPICS.iter().position(|other| other.name() == topic.name());
            assert_eq!(first, Some(index), "{}", topic.name());
        }
    }
}
