//! Negotiation of compressed answers.

use axum::http::{HeaderMap, header};

/// Returns whether gzip is accepted, and not with a weight of zero (RFC 9110, section 12.5.3).
pub fn accepts_gzip(request: &HeaderMap) -> bool {
    let values = request.get_all(header::ACCEPT_ENCODING).iter();
    let mut codings = values.filter_map(|value| value.to_str().ok()).flat_map(|it| it.split(','));
    codings.any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").map(str::parse::<f32>);
        name.trim().eq_ignore_ascii_case("gzip")
            && weight.is_none_or(|weight| weight.is_ok_and(|weight| weight > 0.0))
    })
}
