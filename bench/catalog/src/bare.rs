//! A server of the catalog's own stack that only answers with given bytes.
//!
//! Standard input is one JSON object: for each path the file with its body, its content type, and
//! its encoding, if any. The only line on standard output is the address. The server ends at the
//! end of its standard input.

use std::collections::HashMap;
use std::fs;
use std::io::{self, BufRead as _, Read as _};
use std::thread;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use axum::routing::get;
use bytes::Bytes;
use serde::Deserialize;

/// As many threads as the catalog uses.
const WORKER_THREADS: usize = 2;

#[derive(Deserialize)]
struct Answer {
    file: String,
    content_type: String,
    encoding: Option<String>,
}

pub fn serve() -> Result<(), String> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map_err(|error| error.to_string())?;
    let answers: HashMap<String, Answer> =
        serde_json::from_str(&line).map_err(|error| error.to_string())?;
    let mut router = Router::new();
    for (path, answer) in answers {
        let body = Bytes::from(fs::read(&answer.file).map_err(|error| error.to_string())?);
        let mut headers = HeaderMap::new();
        let value = |text: &str| HeaderValue::from_str(text).map_err(|error| error.to_string());
        headers.insert(header::CONTENT_TYPE, value(&answer.content_type)?);
        headers.insert(header::ETAG, HeaderValue::from_static("W/\"0123456789abcdef\""));
        if let Some(encoding) = &answer.encoding {
            headers.insert(header::CONTENT_ENCODING, value(encoding)?);
        }
        let handler = move || async move {
            let mut response = Response::new(Body::from(body.clone()));
            *response.headers_mut() = headers.clone();
            response
        };
        router = router.route(&path, get(handler));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime
        .block_on(async move {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
            println!("{}", listener.local_addr()?);
            thread::spawn(|| {
                // The parent process keeps the other end open as long as it needs the server.
                drop(io::stdin().lock().read_to_end(&mut Vec::new()));
                std::process::exit(0);
            });
            axum::serve(listener, router).await
        })
        .map_err(|error: io::Error| error.to_string())
}
