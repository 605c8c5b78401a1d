//! Parameters of a subscription, as part of an address. Pure.

use node::http::HttpError;
use serde_json::{Map, Value};

use crate::percent::escaped;

/// Parameters that a topic has not taken yet.
pub(super) struct TopicParameters(Map<String, Value>);

impl TopicParameters {
    pub(super) fn new(parameters: Map<String, Value>) -> TopicParameters {
        TopicParameters(parameters)
    }

    /// Takes a parameter in query syntax; none if it is missing or null.
    ///
    /// # Errors
    /// If it is an object, or a list of anything but texts and numbers.
    pub(super) fn take(&mut self, name: &str) -> Result<Option<String>, HttpError> {
        let wrong = || {
            let message = "must be a text, a number, true or false, or a list of texts";
            HttpError::invalid(message).at(name)
        };
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Array(parts)) => {
                let parts: Option<Vec<String>> = parts.iter().map(scalar).collect();
                parts.map(|parts| Some(parts.join(","))).ok_or_else(wrong)
            }
            Some(value) => scalar(&value).map(Some).ok_or_else(wrong),
        }
    }

    /// Takes a parameter as a path segment.
    ///
    /// # Errors
    /// If it is missing or empty.
    pub(super) fn segment(&mut self, name: &str) -> Result<String, HttpError> {
        let value = self.take(name)?.filter(|value| !value.is_empty());
        // A segment of dots would lead to another route.
        let value = value.filter(|value| value != "." && value != "..");
        let value = value.ok_or_else(|| HttpError::invalid("is needed").at(name))?;
        Ok(escaped(&value))
    }

    /// Adds the parameters with these names to a query, and rejects all others.
    ///
    /// # Errors
    /// Names the parameter that is unknown, or has an unsupported value.
    pub(super) fn into_target(
        mut self,
        path: &str,
        fixed: &str,
        names: &[&str],
    ) -> Result<String, HttpError> {
        let mut query = String::from(fixed);
        for name in names {
            if let Some(value) = self.take(name)? {
                let separator = if query.is_empty() { "" } else { "&" };
                query.push_str(&format!("{separator}{name}={}", escaped(&value)));
            }
        }
        if let Some(unknown) = self.0.keys().next() {
            let unknown: String = unknown.chars().take(64).collect();
            let known = match names.is_empty() {
                true => "the topic has none".to_owned(),
                false => format!("the topic has {}", names.join(", ")),
            };
            return Err(HttpError::invalid(format!("unknown parameter; {known}")).at(unknown));
        }
        let separator = if query.is_empty() { "" } else { "?" };
        Ok(format!("{path}{separator}{query}"))
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
