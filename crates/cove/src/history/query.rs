//! Parameters of a request for history. Pure.

use axum::http::Uri;
use node::history::{COARSE_STEP_S, FINE_SLOTS, FINE_STEP_S, POINTS_MAX, SeriesId, WINDOW_S_MAX};
use node::http::{self, HttpError};
use serde::Deserialize;

use super::catalogue;
use crate::values;

/// Default window: 15 minutes. Default number of values of a series: the columns of a small chart.
const WINDOW_S_DEFAULT: u64 = FINE_SLOTS * FINE_STEP_S;

/// Values of a series where no step was asked for: as many as a small chart has columns.
const POINTS_DEFAULT: u64 = 180;

/// Maximum names in one request.
const NAMES_MAX: usize = 64;

/// Default steps in seconds: values that are easy to read.
const STEPS_S: [u64; 12] = [1, 2, 5, 10, 20, 30, 60, 120, 240, 300, 480, 600];

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct HistoryParameters {
    window: Option<String>,
    step: Option<String>,
    steps: Option<u64>,
    series: Option<String>,
    tenant: Option<String>,
}

/// Parsed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HistoryQuery {
    pub(super) window_s: u64,
    pub(super) step_s: u64,
    pub(super) selection: HistorySelection,
}

/// Requested series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HistorySelection {
    /// Names, and name prefixes followed by an asterisk; empty for all.
    patterns: Vec<String>,
    /// Tenant of the bouncer to which its series are restricted.
    tenant: Option<String>,
}

impl HistorySelection {
    /// Returns the names without an asterisk.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.patterns.iter().map(String::as_str).filter(|it| !it.ends_with('*'))
    }

    /// Returns whether a series is requested.
    pub(super) fn has(&self, id: &SeriesId) -> bool {
        let is_named = self.patterns.is_empty()
            || self.patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
                Some(beginning) => id.spec.name.starts_with(beginning),
                None => id.spec.name == pattern,
            });
        let is_of_tenant = match (&self.tenant, id.spec.label) {
            (Some(tenant), Some(catalogue::TENANT)) => *tenant == *id.label,
            _ => true,
        };
        is_named && is_of_tenant
    }
}

impl HistoryQuery {
    /// Parses the query of a URI.
    ///
    /// # Errors
    /// Names the invalid parameter.
    pub(super) fn of(uri: &Uri) -> Result<HistoryQuery, HttpError> {
        let parameters: HistoryParameters = http::query(uri)?;
        let (window_s, step_s) = match parameters.steps {
            Some(steps) => {
                if parameters.window.is_some() {
                    let message = "takes the place of `window`; give one of the two";
                    return Err(HttpError::invalid(message).at("steps"));
                }
                let step_s = seconds("step", parameters.step.as_deref())?.unwrap_or(FINE_STEP_S);
                if !(1..=POINTS_MAX).contains(&steps) || steps * step_s > WINDOW_S_MAX {
                    let message = format!("must be 1 to {POINTS_MAX}, and 24 h at most");
                    return Err(HttpError::invalid(message).at("steps"));
                }
                (steps * step_s, step_s)
            }
            None => {
                let window_s = seconds("window", parameters.window.as_deref())?;
                let window_s = window_s.unwrap_or(WINDOW_S_DEFAULT);
                let step_s = seconds("step", parameters.step.as_deref())?;
                (window_s, step_s.unwrap_or_else(|| step_of(window_s)))
            }
        };
        check(window_s, step_s)?;
        let selection = HistorySelection {
            patterns: patterns(parameters.series.as_deref())?,
            tenant: parameters.tenant,
        };
        Ok(HistoryQuery { window_s, step_s, selection })
    }
}

/// Returns the smallest step with which a window has few enough values.
fn step_of(window_s: u64) -> u64 {
    let least = if window_s > FINE_SLOTS * FINE_STEP_S { COARSE_STEP_S } else { FINE_STEP_S };
    let fits = |step: &u64| *step >= least && window_s.div_ceil(*step) <= POINTS_DEFAULT;
    STEPS_S.into_iter().find(fits).unwrap_or(STEPS_S[STEPS_S.len() - 1])
}

fn check(window_s: u64, step_s: u64) -> Result<(), HttpError> {
    if window_s > WINDOW_S_MAX {
        return Err(HttpError::invalid("must be 24h at most: no more is kept").at("window"));
    }
    if window_s > FINE_SLOTS * FINE_STEP_S && !step_s.is_multiple_of(COARSE_STEP_S) {
        let message = "must be a multiple of 10s where `window` is more than 15m";
        return Err(HttpError::invalid(message).at("step"));
    }
    if window_s.div_ceil(step_s) > POINTS_MAX {
        let message = format!("is too small: the window would have more than {POINTS_MAX} steps");
        return Err(HttpError::invalid(message).at("step"));
    }
    Ok(())
}

fn seconds(field: &'static str, text: Option<&str>) -> Result<Option<u64>, HttpError> {
    let Some(text) = text else { return Ok(None) };
    let wrong = |message: String| HttpError::invalid(message).at(field);
    let duration = values::duration(text).map_err(wrong)?;
    if duration.subsec_nanos() != 0 || duration.as_secs() == 0 {
        return Err(wrong("must be a whole number of seconds, such as 10s or 15m".to_owned()));
    }
    Ok(Some(duration.as_secs()))
}

fn patterns(text: Option<&str>) -> Result<Vec<String>, HttpError> {
    let names = text.unwrap_or_default().split(',').map(str::trim).filter(|it| !it.is_empty());
    let names: Vec<&str> = names.collect();
    if names.len() > NAMES_MAX {
        let message = format!("has more than {NAMES_MAX} names; end one with `*` for many");
        return Err(HttpError::invalid(message).at("series"));
    }
    for name in &names {
        let is_known = match name.strip_suffix('*') {
            Some(beginning) => catalogue::ALL.iter().any(|it| it.name.starts_with(beginning)),
            None => catalogue::find(name).is_some(),
        };
        if !is_known {
            let name: String = name.chars().take(64).collect();
            let message = format!("unknown series {name:?}; without `series` the answer has all");
            return Err(HttpError::invalid(message).at("series"));
        }
    }
    Ok(names.into_iter().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(query: &str) -> Result<(u64, u64), String> {
        let uri: Uri = format!("/v1/history?{query}").parse().unwrap();
        let found = HistoryQuery::of(&uri);
        found
            .map(|it| (it.window_s, it.step_s))
            .map_err(|error| error.detail().field.clone().unwrap_or_default())
    }

    #[test]
    fn a_window_has_a_step_that_people_read() {
        for (query, expected) in [
            ("", Ok((900, 5))),
            ("window=60", Ok((60, 1))),
            ("window=15m&step=1s", Ok((900, 1))),
            ("window=1h", Ok((3600, 20))),
            ("window=24h", Ok((86_400, 480))),
            ("window=1d&step=2m", Ok((86_400, 120))),
            ("steps=3", Ok((3, 1))),
            ("steps=3&step=8m", Ok((1440, 480))),
            ("window=25h", Err("window")),
            ("window=1h&step=15s", Err("step")),
            ("window=24h&step=10s", Err("step")),
            ("window=1.5s", Err("window")),
            ("window=soon", Err("window")),
            ("step=0", Err("step")),
            ("steps=0", Err("steps")),
            ("steps=3&window=1h", Err("steps")),
            ("steps=900&step=10m", Err("steps")),
            ("series=cove_http_requests,cove_bouncer_*", Ok((900, 5))),
            ("series=nonsense", Err("series")),
            ("series=nonsense*", Err("series")),
            ("colour=blue", Err("")),
        ] {
            assert_eq!(parsed(query), expected.map_err(str::to_owned), "{query}");
        }
    }

    #[test]
    fn a_selection_is_of_names_beginnings_and_a_tenant() {
        let uri: Uri =
            "/v1/history?series=cove_http_requests,cove_bouncer_*&tenant=shop".parse().unwrap();
        let selection = HistoryQuery::of(&uri).unwrap().selection;
        let id = |spec, label: &str| SeriesId { spec, owner: None, label: label.into() };
        for (id, expected) in [
            (id(&catalogue::HTTP_REQUESTS, ""), true),
            (id(&catalogue::HTTP_FAILURES, ""), false),
            (id(&catalogue::BOUNCER_ERRORS, "shop"), true),
            (id(&catalogue::BOUNCER_ERRORS, "other"), false),
        ] {
            assert_eq!(selection.has(&id), expected, "{id:?}");
        }
        assert_eq!(selection.names().collect::<Vec<_>>(), ["cove_http_requests"]);
    }
}
