//! Summaries of the audit log: accesses and refusals by target, holder or grant. Pure.

use std::collections::{BTreeSet, HashMap};

use api::{AuditEvent, AuditOutcome, AuditSummaryGroup, AuditSummaryKey};

/// Groups of a summary. What belongs to others is counted together.
const GROUPS_MAX: usize = 1000;

/// Targets of one group that are distinguished.
const TARGETS_MAX: usize = 1000;

/// Targets of one group that are named.
const TARGETS_NAMED: usize = 20;

/// Records that are counted together.
#[derive(Debug)]
pub(crate) struct AuditSummary {
    by: AuditSummaryKey,
    groups: HashMap<(String, String), SummaryGroup>,
    /// Records of groups that did not fit.
    others: u64,
}

#[derive(Debug, Default)]
struct SummaryGroup {
    counted: AuditSummaryGroup,
    targets: BTreeSet<String>,
}

/// Fields of a record that a summary uses.
#[derive(Debug)]
pub(crate) struct SummarizedRecord<'a> {
    /// Tenant, holder and grant.
    pub(crate) names: [String; 3],
    pub(crate) event: AuditEvent,
    pub(crate) outcome: AuditOutcome,
    pub(crate) text: Option<&'a str>,
    pub(crate) at_ms: u64,
    pub(crate) rows: Option<u64>,
    /// Bytes that went out, and that came in.
    pub(crate) bytes: [Option<u64>; 2],
}

impl AuditSummary {
    pub(crate) fn new(by: AuditSummaryKey) -> AuditSummary {
        AuditSummary { by, groups: HashMap::new(), others: 0 }
    }

    pub(crate) fn add(&mut self, record: SummarizedRecord<'_>) {
        let SummarizedRecord { names: [tenant, holder, grant], event, outcome, .. } = record;
        let target = match record.text.filter(|_| event == AuditEvent::Request) {
            Some(text) => host(text).unwrap_or(&grant).to_owned(),
            None => grant.clone(),
        };
        let key = match self.by {
            AuditSummaryKey::Target => target.clone(),
            AuditSummaryKey::Holder => holder,
            AuditSummaryKey::Grant => grant,
        };
        let key = (tenant, key);
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&key) {
            self.others += 1;
            return;
        }
        let (tenant, name) = key.clone();
        let group = self.groups.entry(key).or_insert_with(|| SummaryGroup {
            counted: AuditSummaryGroup {
                name,
                tenant,
                first_ms: record.at_ms,
                ..AuditSummaryGroup::default()
            },
            targets: BTreeSet::new(),
        });
        let counted = &mut group.counted;
        counted.first_ms = counted.first_ms.min(record.at_ms);
        counted.last_ms = counted.last_ms.max(record.at_ms);
        if event == AuditEvent::Missing {
            counted.missing += record.rows.unwrap_or(0);
            return;
        }
        counted.records += 1;
        match outcome {
            AuditOutcome::Done => {}
            AuditOutcome::Failed => counted.failed += 1,
            AuditOutcome::Refused => counted.refused += 1,
        }
        counted.rows += record.rows.unwrap_or(0);
        let [out, received] = record.bytes.map(|bytes| bytes.unwrap_or(0));
        counted.bytes_out += out;
        counted.bytes_in += received;
        let is_use =
            matches!(event, AuditEvent::Connect | AuditEvent::Statement | AuditEvent::Request);
        if is_use && group.targets.len() < TARGETS_MAX {
            group.targets.insert(target);
        }
    }

    /// Returns the groups, those with most records first, and how many records are in none.
    pub(crate) fn finish(self) -> (Vec<AuditSummaryGroup>, u64) {
        let mut groups: Vec<_> = self
            .groups
            .into_values()
            .map(|SummaryGroup { counted, targets }| AuditSummaryGroup {
                targets_count: u64::try_from(targets.len()).unwrap_or(u64::MAX),
                targets: targets.into_iter().take(TARGETS_NAMED).collect(),
                ..counted
            })
            .collect();
        groups.sort_by(|a, b| {
            b.records.cmp(&a.records).then_with(|| (&a.name, &a.tenant).cmp(&(&b.name, &b.tenant)))
        });
        (groups, self.others)
    }
}

/// The host, with its port, of a request: a method and a URL, or the authority of a tunnel.
fn host(text: &str) -> Option<&str> {
    let (_method, rest) = text.split_once(' ')?;
    let rest = rest.split(' ').next().unwrap_or(rest);
    let rest = rest.split_once("://").map_or(rest, |(_scheme, rest)| rest);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let host = rest.get(..end).filter(|host| !host.is_empty())?;
    Some(host.rsplit_once('@').map_or(host, |(_user, host)| host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_the_host_of_a_request() {
        for (text, expected) in [
            ("GET https://api.example.com/v1?x=1", Some("api.example.com")),
            ("CONNECT db.example.com:443", Some("db.example.com:443")),
            ("GET http://user@h:8080/", Some("h:8080")),
            ("POST /v1/messages", None),
            ("nonsense", None),
        ] {
            assert_eq!(host(text), expected, "{text}");
        }
    }

    fn record<'a>(
        holder: &str,
        event: AuditEvent,
        outcome: AuditOutcome,
        text: Option<&'a str>,
    ) -> SummarizedRecord<'a> {
        let names = ["team", holder, "http"].map(str::to_owned);
        let (at_ms, rows, bytes) = (5, Some(2), [Some(10), None]);
        SummarizedRecord { names, event, outcome, text, at_ms, rows, bytes }
    }

    #[test]
    fn records_are_counted_by_what_they_have_in_common() {
        let all = [
            ("ses_1", AuditEvent::Granted, AuditOutcome::Done, None),
            ("ses_1", AuditEvent::Request, AuditOutcome::Done, Some("GET https://a/1")),
            ("ses_1", AuditEvent::Request, AuditOutcome::Refused, Some("GET https://b/1")),
            ("ses_2", AuditEvent::Request, AuditOutcome::Failed, Some("GET https://a/2")),
            ("ses_2", AuditEvent::Missing, AuditOutcome::Done, None),
        ];
        for (by, expected) in [
            (AuditSummaryKey::Holder, [("ses_1", 3, 1, 2, 0), ("ses_2", 1, 0, 1, 2)].as_slice()),
            (
                AuditSummaryKey::Target,
                &[("a", 2, 0, 1, 0), ("b", 1, 1, 1, 0), ("http", 1, 0, 0, 2)],
            ),
            (AuditSummaryKey::Grant, &[("http", 4, 1, 2, 2)]),
        ] {
            let mut summary = AuditSummary::new(by);
            all.iter().for_each(|it| summary.add(record(it.0, it.1, it.2, it.3)));
            let (groups, others) = summary.finish();
            let found: Vec<_> = groups
                .iter()
                .map(|it| (it.name.as_str(), it.records, it.refused, it.targets_count, it.missing))
                .collect();
            assert_eq!((found.as_slice(), others), (expected, 0), "{by:?}");
        }
    }

    #[test]
    fn groups_are_bounded() {
        let mut summary = AuditSummary::new(AuditSummaryKey::Holder);
        for index in 0..GROUPS_MAX + 5 {
            let holder = format!("ses_{index}");
            summary.add(record(&holder, AuditEvent::Connect, AuditOutcome::Done, None));
        }
        let (groups, others) = summary.finish();
        assert_eq!((groups.len(), others), (GROUPS_MAX, 5));
    }
}
