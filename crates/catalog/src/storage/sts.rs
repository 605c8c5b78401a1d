//! The token service: credentials for a role and a session policy, by one signed form request.
//!
//! <https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html>

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use bytes::Bytes;
use node::client::{AddressGuard, ClientRequest, HttpClient, TlsRoots};
use node::clock;
use node::objects::sign::{self, SignedParts};
use node::objects::{S3Location, SigningCredentials};

use super::settings::StorageSettings;
use super::xml::XmlElement;
use crate::error::{CatalogError, ErrorReason, Result};
use crate::shell::header_value;

/// Most bytes of a response.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Longest time for a response: a client waits for the table.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Longest part of credentials, in bytes. Tokens of some services have several thousand bytes.
const TEXT_BYTES_MAX: usize = 8 << 10;

const VERSION: &str = "2011-06-15";
const FORM: &str = "application/x-www-form-urlencoded";
const X_AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
const X_AMZ_SECURITY_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

/// Temporary credentials.
#[derive(Clone, Debug)]
pub struct TemporaryCredentials {
    /// Credentials with a session token.
    pub credentials: SigningCredentials,
    /// End of their validity, in milliseconds since 1970.
    pub expires_ms: u64,
}

/// A token service.
#[derive(Debug)]
pub(super) struct StsClient {
    client: HttpClient,
    /// `http://host:port`, without a path.
    endpoint: String,
    host: String,
    region: String,
    role_arn: Option<String>,
    external_id: Option<String>,
    seconds: u64,
}

impl StsClient {
    /// Creates a client of the token service of an object store.
    #[must_use]
    pub(super) fn new(location: &S3Location, settings: &StorageSettings) -> StsClient {
        let region = location.region.clone();
        let amazon = super::amazon_endpoint(&region);
        let endpoint = match &settings.sts_endpoint {
            Some(endpoint) => endpoint.trim_end_matches('/').to_owned(),
            None if location.endpoint == amazon => format!("https://sts.{region}.amazonaws.com"),
            None => location.endpoint.clone(),
        };
        let roots = location.ca.clone().map_or(TlsRoots::Machine, TlsRoots::File);
        StsClient {
            client: HttpClient::with_roots(AddressGuard::Open, roots),
            host: super::host(&endpoint),
            endpoint,
            region,
            role_arn: settings.role_arn.clone(),
            external_id: settings.external_id.clone(),
            seconds: settings.credentials_seconds,
        }
    }

    /// Fetches credentials for the permissions of `policy`. `session` is their name in the store's
    /// own log.
    ///
    /// # Errors
    /// `ServiceUnavailable` if the service returns none; the log has the reason.
    pub(super) async fn assume(
        &self,
        own: &SigningCredentials,
        policy: &str,
        session: &str,
    ) -> Result<TemporaryCredentials> {
        let form = self.form(policy, session);
        let answer = self.client.send(self.request(own, form)?).await.map_err(unavailable)?;
        let status = answer.status;
        let body = answer.bytes().await.map_err(unavailable)?;
        let text = std::str::from_utf8(&body).unwrap_or_default();
        if status != StatusCode::OK {
            return Err(unavailable(format!("{status} {}", code(text))));
        }
        let longest_ms = self.seconds.saturating_mul(1000);
        let found = temporary(text).ok_or_else(|| unavailable("its answer has no credentials"))?;
        // Independent of the service's clock: the validity never exceeds the requested one.
        let expires_ms = found.expires_ms.min(clock::wall_ms().saturating_add(longest_ms));
        Ok(TemporaryCredentials { expires_ms, ..found })
    }

    fn form(&self, policy: &str, session: &str) -> String {
        let seconds = self.seconds.to_string();
        let mut fields = vec![
            ("Action", "AssumeRole"),
            ("DurationSeconds", &*seconds),
            ("Policy", policy),
            ("RoleSessionName", session),
            ("Version", VERSION),
        ];
        fields.extend(self.role_arn.as_deref().map(|arn| ("RoleArn", arn)));
        fields.extend(self.external_id.as_deref().map(|id| ("ExternalId", id)));
        let fields = fields.iter().map(|(name, value)| format!("{name}={}", sign::escaped(value)));
        fields.collect::<Vec<_>>().join("&")
    }

    fn request(&self, own: &SigningCredentials, form: String) -> Result<ClientRequest> {
        let time = sign::amz_date(clock::wall());
        let payload = sign::sha256(form.as_bytes());
        let mut headers =
            vec![("content-type", FORM), ("host", &*self.host), ("x-amz-date", &*time)];
        headers.extend(own.session_token.as_deref().map(|it| ("x-amz-security-token", it)));
        let signed = SignedParts {
            method: "POST",
            path: "/",
            query: "",
            headers: &headers,
            payload: &payload,
            time: &time,
            region: &self.region,
            service: "sts",
        };
        let authorization = sign::authorization(own, &signed);
        let mut sent = HeaderMap::new();
        sent.insert(header::CONTENT_TYPE, HeaderValue::from_static(FORM));
        sent.insert(X_AMZ_DATE, header_value(&time)?);
        sent.insert(header::AUTHORIZATION, header_value(&authorization)?);
        if let Some(token) = &own.session_token {
            sent.insert(X_AMZ_SECURITY_TOKEN, header_value(token)?);
        }
        Ok(ClientRequest {
            headers: sent,
            body: Bytes::from(form),
            timeout: TIMEOUT,
            response_bytes_max: ANSWER_BYTES_MAX,
            ..ClientRequest::new(Method::POST, format!("{}/", self.endpoint))
        })
    }
}

fn unavailable(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> CatalogError {
    let message = "the token service of the warehouse issues no credentials at present";
    CatalogError::caused(ErrorReason::ServiceUnavailable, message, cause)
}

/// Returns the error code in a response, for the log.
fn code(text: &str) -> String {
    let root = XmlElement::parse(text);
    let error = root.as_ref().and_then(|root| root.find("Error"));
    let code = error.and_then(|error| error.text_of("Code")).unwrap_or_default();
    code.chars().filter(char::is_ascii_alphanumeric).take(100).collect()
}

/// Parses the credentials in a response.
fn temporary(text: &str) -> Option<TemporaryCredentials> {
    let root = XmlElement::parse(text)?;
    let element = root.find("AssumeRoleResult")?.find("Credentials")?;
    let text = |name: &str| {
        let text = element.text_of(name)?.trim();
        let is_good = !text.is_empty()
            && text.len() <= TEXT_BYTES_MAX
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_good.then(|| text.to_owned())
    };
    let credentials = SigningCredentials {
        access_key_id: text("AccessKeyId")?,
        secret_access_key: text("SecretAccessKey")?,
        session_token: Some(text("SessionToken")?),
    };
    Some(TemporaryCredentials { credentials, expires_ms: ms_of(&text("Expiration")?)? })
}

/// Parses a time of RFC 3339 in UTC, in milliseconds since 1970, without its fraction.
fn ms_of(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    let is_shape = text.is_ascii()
        && bytes.len() >= 20
        && (bytes[4], bytes[7], bytes[10], bytes[13], bytes[16]) == (b'-', b'-', b'T', b':', b':');
    let end = text.get(19..)?;
    let fraction = end.strip_prefix('.').and_then(|it| it.strip_suffix('Z'));
    let is_digits = |it: &str| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit());
    if !is_shape || !(end == "Z" || fraction.is_some_and(is_digits)) {
        return None;
    }
    let number = |from: usize, to: usize| {
        text.get(from..to).filter(|it| is_digits(it)).and_then(|it| it.parse::<u64>().ok())
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let is_time = hour < 24 && minute < 60 && second < 61;
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) || !is_time {
        return None;
    }
    // Years are counted from March, so that the leap day is the last day of a year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    let days = days.checked_sub(719_468)?;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1000)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn answer(inside: &str) -> String {
        format!(
            "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
             <AssumeRoleResult><AssumedRoleUser><Arn>x</Arn></AssumedRoleUser>\
             <Credentials>{inside}</Credentials></AssumeRoleResult>\
             <ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></AssumeRoleResponse>"
        )
    }

    #[test]
    fn answers_are_read_and_what_is_none_is_refused() {
        let good = "<AccessKeyId>A</AccessKeyId><SecretAccessKey>S/+=</SecretAccessKey>\
            <SessionToken>T</SessionToken><Expiration>2026-11-22T15:00:00Z</Expiration>";
        let found = temporary(&answer(good)).unwrap();
        assert_eq!(found.expires_ms, 1_795_359_600_000);
        assert_eq!(found.credentials.session_token.as_deref(), Some("T"));
        assert!(!format!("{found:?}").contains("S/+="));
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        for (from, to) in [
            ("<AccessKeyId>A</AccessKeyId>", ""),
            ("<AccessKeyId>A</AccessKeyId>", "<AccessKeyId/>"),
            ("<AccessKeyId>A<", "<AccessKeyId>A\r\nx: y<"),
            ("<AccessKeyId>A<", "<AccessKeyId>A&#10;x: y<"),
            ("<SessionToken>T</SessionToken>", ""),
            ("<SessionToken>T<", &format!("<SessionToken>{long}<")),
            ("<SessionToken>T<", "<SessionToken>T</SessionToken><SessionToken>U<"),
            ("2026-11-22T15:00:00Z", "tomorrow"),
            ("2026-11-22T15:00:00Z", "2026-13-22T15:00:00Z"),
            ("<SessionToken>", "<!-- x --><SessionToken>"),
        ] {
            assert!(temporary(&answer(&good.replace(from, to))).is_none(), "{to}");
        }
        assert!(temporary("").is_none() && temporary("<html/>").is_none());
        let error = "<ErrorResponse><Error><Code>AccessDenied\n</Code></Error></ErrorResponse>";
        assert_eq!((&*code(error), &*code("x")), ("AccessDenied", ""));
    }

    #[test]
    fn times_are_those_that_the_clock_writes() {
        for days in (0..40_000).step_by(17) {
            let time = UNIX_EPOCH + Duration::from_secs(days * 86_400 + 12_345);
            let ms = (days * 86_400 + 12_345) * 1000;
            assert_eq!(ms_of(&clock::rfc3339(time)), Some(ms), "{}", clock::rfc3339(time));
        }
        assert_eq!(ms_of("2026-11-22T15:00:00.123Z"), ms_of("2026-11-22T15:00:00Z"));
        for wrong in [
            "",
            "2026-11-22",
            "2026-11-22T15:00:00",
            "2026-11-22T15:00:00+01:00",
            "2026-11-22T15:00:00.Z",
            "2026-11-22T25:00:00Z",
            "+026-11-22T15:00:00Z",
            "1969-12-31T00:00:00Z",
            "2026-1é-22T15:00:00Z",
        ] {
            assert_eq!(ms_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_form_says_what_is_asked_for() {
        let location = "bkt/w?endpoint=http://127.0.0.1:9&region=eu".parse().unwrap();
        let settings = StorageSettings {
            role_arn: Some("arn:aws:iam::1:role/x y".to_owned()),
            ..StorageSettings::default()
        };
        let sts = StsClient::new(&location, &settings);
        let expected = "Action=AssumeRole&DurationSeconds=3600&Policy=%7B%7D&RoleSessionName=s\
            &Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fx%20y";
        assert_eq!(sts.form("{}", "s"), expected);
        let own = SigningCredentials {
            access_key_id: "ID".to_owned(),
            secret_access_key: "KEY".to_owned(),
            session_token: None,
        };
        let request = sts.request(&own, sts.form("{}", "s")).unwrap();
        assert_eq!(request.url, "http://127.0.0.1:9/");
        let signed = request.headers[header::AUTHORIZATION].to_str().unwrap();
        assert!(
            signed.contains("/eu/sts/aws4_request, SignedHeaders=content-type;host;x-amz-date")
        );
        let amazon = StsClient::new(&"bucket/w?region=eu-west-1".parse().unwrap(), &settings);
        assert_eq!(amazon.endpoint, "https://sts.eu-west-1.amazonaws.com");
    }
}
