//! Lists: pages of sandboxes and of snapshots, with E2B's filters.

use std::collections::BTreeMap;

use api::SessionState;
use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::{Answer, AuthorizedRequest, shapes};
use crate::faces::e2b::errors::RestError;
use crate::faces::e2b::query::{parameters, quoted_pairs};
use crate::faces::e2b::sandboxes::{FACE, StoredE2bSandbox};
use crate::service::{ListQuery, ListedSession};

/// Default and maximum number of items on a page.
pub(super) const PAGE_MAX: usize = 100;
/// Maximum number of sandboxes examined for one page.
const LOOKED_AT_MAX: usize = 20_000;
/// Digits of a second's fraction that are compared: nanoseconds.
const FRACTION_DIGITS: usize = 9;
/// Header with the start of the next page.
const NEXT: HeaderName = HeaderName::from_static("x-next-token");
/// States that E2B calls paused.
const PAUSED: [SessionState; 4] =
    [SessionState::Starting, SessionState::Paused, SessionState::Stopped, SessionState::Error];

/// Filter of a list.
#[derive(Debug, PartialEq)]
struct ListSelection {
    metadata: BTreeMap<String, String>,
    states: Vec<SessionState>,
    template: Option<String>,
    /// In the form of [`utc`]. Includes sandboxes created at that very moment, because clients pass
    /// the time of a known sandbox.
    started_after: Option<String>,
    oldest_first: bool,
    limit: usize,
    next: Option<String>,
    sandbox: Option<String>,
    name: Option<String>,
}

impl ListSelection {
    fn parse(query: &str) -> Result<ListSelection, RestError> {
        let mut wanted = ListSelection {
            metadata: BTreeMap::new(),
            states: [&[SessionState::Active][..], &PAUSED].concat(),
            template: None,
            started_after: None,
            oldest_first: false,
            limit: PAGE_MAX,
            next: None,
            sandbox: None,
            name: None,
        };
        let mut states = Vec::new();
        for (name, value) in parameters(query) {
            match name.as_str() {
                "metadata" => wanted.metadata = quoted_pairs(&value),
                "state" => {
                    for state in value.split(',').filter(|state| !state.is_empty()) {
                        match state {
                            "running" => states.push(SessionState::Active),
                            "paused" => states.extend(PAUSED),
                            _ => return Err(wrong("state", "must be running or paused")),
                        }
                    }
                }
                "template" => wanted.template = Some(value),
                "startedAfter" => {
                    let time = utc(&value);
                    let message = "must be a time in UTC, as in RFC 3339";
                    wanted.started_after =
                        Some(time.ok_or_else(|| wrong("startedAfter", message))?);
                }
                "order" => match value.as_str() {
                    "asc" => wanted.oldest_first = true,
                    "desc" => wanted.oldest_first = false,
                    _ => return Err(wrong("order", "must be asc or desc")),
                },
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| *limit > 0);
                    let limit: usize = limit.ok_or_else(|| wrong("limit", "must be a number"))?;
                    wanted.limit = limit.min(PAGE_MAX);
                }
                "nextToken" => wanted.next = Some(value).filter(|next| !next.is_empty()),
                "sandboxID" => wanted.sandbox = Some(value),
                "name" => wanted.name = Some(value),
                _ => {}
            }
        }
        if !states.is_empty() {
            wanted.states = states;
        }
        Ok(wanted)
    }
}

fn wrong(field: &str, message: &str) -> RestError {
    RestError::invalid(format!("{field}: {message}"))
}

/// Normalizes a time in UTC to a form that compares as text, with a fixed number of fraction
/// digits.
fn utc(text: &str) -> Option<String> {
    let text = text.strip_suffix('Z').or_else(|| text.strip_suffix("+00:00")).unwrap_or(text);
    let shape = b"0000-00-00T00:00:00";
    let (fixed, fraction) = text.split_at_checked(shape.len())?;
    let fits = fixed.bytes().zip(shape).all(|(byte, shape)| match shape {
        b'0' => byte.is_ascii_digit(),
        other => byte == *other,
    });
    let digits = match fraction.strip_prefix('.') {
        None => Some(fraction).filter(|rest| rest.is_empty()),
        Some(digits) => Some(digits).filter(|it| it.bytes().all(|byte| byte.is_ascii_digit())),
    };
    let digits = digits.filter(|_| fits)?;
    let digits = digits.get(..FRACTION_DIGITS).unwrap_or(digits);
    Some(format!("{fixed}.{digits:0<FRACTION_DIGITS$}"))
}

fn page(items: Vec<Value>, next: Option<String>) -> Response {
    let mut response = (StatusCode::OK, Json(items)).into_response();
    if let Some(next) = next.and_then(|next| HeaderValue::try_from(next).ok()) {
        response.headers_mut().insert(NEXT, next);
    }
    response
}

impl AuthorizedRequest<'_> {
    /// Lists running sandboxes, for older clients.
    pub(super) async fn list_running(&self) -> Answer {
        let mut wanted = ListSelection::parse(self.uri.query().unwrap_or_default())?;
        wanted.states = vec![SessionState::Active];
        wanted.limit = LOOKED_AT_MAX;
        let (items, _) = self.sandboxes(&wanted).await?;
        Ok(page(items, None))
    }

    /// Returns a page of sandboxes.
    pub(super) async fn list_page(&self) -> Answer {
        let wanted = ListSelection::parse(self.uri.query().unwrap_or_default())?;
        let (items, next) = self.sandboxes(&wanted).await?;
        Ok(page(items, next))
    }

    async fn sandboxes(
        &self,
        wanted: &ListSelection,
    ) -> Result<(Vec<Value>, Option<String>), RestError> {
        let mut found: Vec<(String, Value)> = Vec::new();
        // The store lists the newest first; for the oldest first, all are examined.
        let mut cursor = wanted.next.clone().filter(|_| !wanted.oldest_first);
        let enough = if wanted.oldest_first { usize::MAX } else { wanted.limit };
        let mut looked_at = 0;
        loop {
            let query = ListQuery {
                states: wanted.states.clone(),
                metadata: wanted.metadata.clone(),
                face: Some(Some(FACE.to_owned())),
                cursor,
                limit: PAGE_MAX,
                ..ListQuery::default()
            };
            let list = self.face.sessions.queries()?.list_with_extras(self.tenant, query).await?;
            looked_at += list.sessions.len();
            for ListedSession { session, extras } in &list.sessions {
                let kept: StoredE2bSandbox =
                    serde_json::from_value(extras.extra.clone()).unwrap_or_default();
                let created = utc(&session.created_at);
                let is_wanted = wanted.template.as_ref().is_none_or(|it| *it == kept.template)
                    && wanted
                        .started_after
                        .as_ref()
                        .is_none_or(|after| created.as_ref() >= Some(after));
                if is_wanted {
                    let item = shapes::listed(session, extras.deadline_ms, &kept);
                    found.push((session.id.clone(), item));
                }
                if found.len() > enough {
                    break;
                }
            }
            cursor = list.next_cursor;
            if cursor.is_none() || found.len() > enough || looked_at >= LOOKED_AT_MAX {
                break;
            }
        }
        if wanted.oldest_first {
            found.reverse();
            let after = wanted.next.as_deref().unwrap_or_default();
            found.retain(|(id, _)| id.as_str() > after);
        }
        let has_more = found.len() > wanted.limit;
        found.truncate(wanted.limit);
        let next = found.last().map(|(id, _)| id.clone()).filter(|_| has_more);
        Ok((found.into_iter().map(|(_, item)| item).collect(), next))
    }

    /// Returns a page of snapshots.
    pub(super) async fn snapshots(&self) -> Answer {
        let wanted = ListSelection::parse(self.uri.query().unwrap_or_default())?;
        let (mut found, mut before) = (Vec::new(), wanted.next.clone());
        let sessions = &self.face.sessions;
        loop {
            let session = wanted.sandbox.as_deref();
            let all = sessions
                .copies()?
                .snapshots(self.tenant, session, before.as_deref(), PAGE_MAX)
                .await?;
            let is_last = all.len() < PAGE_MAX;
            before = all.last().map(|snapshot| snapshot.id.clone());
            found.extend(
                all.into_iter()
                    .filter(|snapshot| wanted.name.is_none() || wanted.name == snapshot.name),
            );
            if is_last || found.len() > wanted.limit {
                break;
            }
        }
        let has_more = found.len() > wanted.limit;
        found.truncate(wanted.limit);
        let next = found.last().map(|snapshot| snapshot.id.clone()).filter(|_| has_more);
        Ok(page(found.iter().map(shapes::snapshot).collect(), next))
    }
}

#[cfg(test)]
mod tests {
    //! Filters in the clients' format.

    use super::*;

    #[test]
    fn filters_are_read() {
        let wanted = ListSelection::parse("").unwrap();
        assert_eq!((wanted.limit, wanted.states.len(), wanted.next), (PAGE_MAX, 5, None));
        let wanted = ListSelection::parse(
            "metadata=user%3D%2525C3%2525A4&state=running&limit=2&nextToken=x&order=asc&template=t\
             &startedAfter=2026-11-21T22%3A00%3A00.123456%2B00%3A00",
        )
        .unwrap();
        assert_eq!(wanted.metadata.get("user").map(String::as_str), Some("ä"));
        assert_eq!(wanted.states, [SessionState::Active]);
        assert_eq!((wanted.limit, wanted.next.as_deref()), (2, Some("x")));
        assert_eq!((wanted.oldest_first, wanted.template.as_deref()), (true, Some("t")));
        assert_eq!(wanted.started_after.as_deref(), Some("2026-11-21T22:00:00.123456000"));
        assert_eq!(ListSelection::parse("state=running,paused").unwrap().states.len(), 5);
        assert_eq!(ListSelection::parse("limit=1000").unwrap().limit, PAGE_MAX);
    }

    #[test]
    fn times_compare_as_moments_however_they_are_written() {
        for (earlier, later) in [
            ("2026-11-21T22:00:00.077Z", "2026-11-21T22:00:00.077001Z"),
            ("2026-11-21T22:00:00Z", "2026-11-21T22:00:00.001Z"),
            ("2026-11-21T22:00:00.999999999Z", "2026-11-21T22:00:01+00:00"),
        ] {
            assert!(utc(earlier).unwrap() < utc(later).unwrap(), "{earlier} {later}");
        }
        for same in ["2026-11-21T22:00:00.077000+00:00", "2026-11-21T22:00:00.0770000004"] {
            assert_eq!(utc(same), utc("2026-11-21T22:00:00.077Z"));
        }
    }

    #[test]
    fn wrong_filters_are_refused() {
        for query in [
            "state=dead",
            "limit=0",
            "limit=x",
            "order=up",
            "startedAfter=yesterday",
            "startedAfter=2026-11-21T22:00:00-05:00",
        ] {
            assert!(ListSelection::parse(query).is_err(), "{query}");
        }
    }
}
