//! S3 service of a test: moto's, which verifies signatures with Amazon's own library.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::service::{Service, free_port};
use crate::{Client, Request, Scratch, python_environment};

/// File of the Python packages that it requires.
const REQUIREMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../compat/s3.txt");

/// Unsigned requests that are accepted for the setup.
const UNSIGNED: &[(&str, &str)] = &[
    ("iam", "Action=CreateUser&Version=2010-05-08&UserName=cove"),
    (
        "iam",
        "Action=PutUserPolicy&Version=2010-05-08&UserName=cove&PolicyName=all&PolicyDocument=\
         %7B%22Version%22%3A%222012-10-17%22%2C%22Statement%22%3A%5B%7B%22Effect%22%3A%22Allow%22\
         %2C%22Action%22%3A%22s3%3A%2A%22%2C%22Resource%22%3A%22%2A%22%7D%5D%7D",
    ),
    ("iam", "Action=CreateAccessKey&Version=2010-05-08&UserName=cove"),
    ("s3", ""),
];

/// Running service on a loopback port, with one bucket and one key for it. It keeps everything in
/// memory.
#[derive(Debug)]
pub struct S3 {
    _service: Service,
    port: u16,
    /// Id of the access key.
    pub access_key_id: String,
    /// Secret access key.
    pub secret_access_key: String,
}

impl S3 {
    /// Name of the bucket.
    pub const BUCKET: &str = "cove-objects";

    /// Starts a service with an empty bucket.
    #[must_use]
    pub fn start() -> S3 {
        let port = free_port();
        // Not as another user: Python may be installed in a directory that other users cannot
        // enter.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(interpreter());
        command.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()]);
        command.env("INITIAL_NO_AUTH_ACTION_COUNT", UNSIGNED.len().to_string());
        command.env("PYTHONDONTWRITEBYTECODE", "1").current_dir("/").stdin(Stdio::null());
        let service = Service::start_command(Scratch::new(), command, "KILL");
        let client = Client::new(([127, 0, 0, 1], port).into(), None);
        service.wait_ready("moto", || {
            // A path of moto's own, which does not count as a setup request.
            let reply = client.try_send(&Request::new("GET", "/moto-api/data.json"));
            reply.map(drop).map_err(|error| error.to_string())
        });
        let mut text = String::new();
        for (name, body) in UNSIGNED {
            let method = if *name == "s3" { "PUT" } else { "POST" };
            let target = if *name == "s3" { format!("/{}", S3::BUCKET) } else { "/".to_owned() };
            let authorization = format!(
                "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/{name}/aws4_request, \
                 SignedHeaders=host, Signature=x"
            );
            let request = Request::new(method, &target)
                .header("authorization", &authorization)
                .header("content-type", "application/x-www-form-urlencoded")
                .body(*body);
            let reply = client.send(&request);
            assert_eq!(reply.status, 200, "{body}: {}", String::from_utf8_lossy(&reply.body));
            text.push_str(&String::from_utf8_lossy(&reply.body));
        }
        let element = |name: &str| {
            let (_, after) = text.split_once(&format!("<{name}>")).expect("a key was made");
            after.split('<').next().unwrap_or_default().to_owned()
        };
        let (access_key_id, secret_access_key) =
            (element("AccessKeyId"), element("SecretAccessKey"));
        S3 { _service: service, port, access_key_id, secret_access_key }
    }

    /// Returns the address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Returns the endpoint: `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns the URL of a prefix in the bucket, for Cove's configuration.
    #[must_use]
    pub fn url(&self, prefix: &str) -> String {
        format!("s3://{}/{prefix}?endpoint={}", S3::BUCKET, self.endpoint())
    }
}

/// Returns an interpreter with the required packages, rebuilt when the requirements change.
fn interpreter() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        // Relative to the test binary: `target/debug/deps/name`.
        let program = std::env::current_exe().expect("the name of the test");
        let target = program.ancestors().nth(3).expect("a directory for what is built");
        python_environment(Path::new(REQUIREMENTS), &target.join("tmp/s3-python"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;

    #[test]
    fn a_service_refuses_what_is_not_signed_and_leaves_nothing_behind() {
        let service = S3::start();
        let client = Client::new(([127, 0, 0, 1], service.port).into(), None);
        let target = format!("/{}?list-type=2", S3::BUCKET);
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/20260101/us-east-1/s3/aws4_request, \
             SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature=x",
            service.access_key_id
        );
        let request = Request::new("GET", &target)
            .header("x-amz-content-sha256", "UNSIGNED-PAYLOAD")
            .header("x-amz-date", "20260101T000000Z")
            .header("authorization", &authorization);
        let reply = client.send(&request);
        assert_eq!(reply.status, 403, "{}", reply.text());
        let marker = format!("-p\0{}", service.port);
        assert!(!process::with_marker(&marker).is_empty());
        drop(service);
        assert!(process::with_marker(&marker).is_empty());
    }
}
