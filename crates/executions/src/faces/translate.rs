//! What the server's shell says by itself (no token, too large, shutting down), in a face's words.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::Response;

/// Errors of the shell are shorter than this.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// How a face writes down an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Piston: `{"message": …}`.
    Message,
    /// Judge0 and go-judge: `{"error": …}`.
    Error,
}

/// Wraps routes, the shell's included, so that every error below a prefix has the shape that stands
/// beside it. Prefixes are without `/` at their end; an empty one means every path.
pub fn translate(routes: Router, prefixes: Vec<(String, Shape)>) -> Router {
    routes.layer(middleware::from_fn_with_state(Arc::new(prefixes), reshape))
}

async fn reshape(
    State(prefixes): State<Arc<Vec<(String, Shape)>>>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let below = |prefix: &str| {
        path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let shape = prefixes.iter().find(|(prefix, _)| below(prefix)).map(|(_, shape)| *shape);
    let response = next.run(request).await;
    match shape {
        Some(shape) if is_error(&response) => reshaped(response, shape).await,
        _ => response,
    }
}

fn is_error(response: &Response) -> bool {
    let status = response.status();
    let json = response.headers().get(header::CONTENT_TYPE);
    (status.is_client_error() || status.is_server_error())
        && json.is_some_and(|value| value.as_bytes().starts_with(b"application/json"))
}

async fn reshaped(response: Response, shape: Shape) -> Response {
    let (mut parts, body) = response.into_parts();
    let Ok(bytes) = to_bytes(body, ERROR_BYTES_MAX).await else {
        parts.headers.remove(header::CONTENT_LENGTH);
        return Response::from_parts(parts, Body::empty());
    };
    let Some(message) = message(&bytes) else {
        return Response::from_parts(parts, Body::from(bytes));
    };
    let body = match shape {
        Shape::Message => serde_json::json!({ "message": message }),
        Shape::Error => serde_json::json!({ "error": message }),
    }
    .to_string();
    parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    Response::from_parts(parts, Body::from(body))
}

/// The message of a native error; none where the face has written its own already.
fn message(body: &[u8]) -> Option<String> {
    let body: api::ErrorBody = serde_json::from_slice(body).ok()?;
    Some(match body.error.field {
        Some(field) => format!("{field}: {}", body.error.message),
        None => body.error.message,
    })
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use axum::response::IntoResponse;

    use super::*;

    #[tokio::test]
    async fn native_errors_are_reshaped_and_a_face_s_own_are_not() {
        let native = || node::http::Error::invalid("is odd").at("wait").into_response();
        let own = || (StatusCode::BAD_REQUEST, axum::Json(serde_json::json!({"x": 1})));
        for (response, shape, expected) in [
            (native(), Shape::Message, r#"{"message":"wait: is odd"}"#),
            (native(), Shape::Error, r#"{"error":"wait: is odd"}"#),
            (own().into_response(), Shape::Error, r#"{"x":1}"#),
        ] {
            assert!(is_error(&response));
            let response = reshaped(response, shape).await;
            assert_eq!(response.status(), StatusCode::BAD_REQUEST);
            let bytes = to_bytes(response.into_body(), 1000).await.unwrap();
            assert_eq!(bytes, expected);
        }
        assert!(!is_error(&"fine".into_response()));
    }
}
