//! Requests with grants or a template in the queue: they only keep these if a Cove server accepted
//! them from an owner with the right to give them.
//!
//! Any writer of the queue can add executions, and could add any grant and any tenant's template to
//! them. So such a request is stored with a proof that only a server can make, bound to its owner.

use api::ExecutionRequest;
use hmac::{Hmac, Mac as _};
use node::hex;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// Context of a proof, so that no other MAC is valid as one.
const ABOUT: &[u8] = b"cove: grants of an execution";

/// Stored form of a request with grants or a template.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredGrants {
    /// The proof, in hexadecimal digits.
    granted: String,
    /// The request, as a string: a back end may reformat JSON, but not strings.
    request: String,
}

/// Returns the text that is stored for an accepted request of this tenant.
///
/// # Errors
/// If it cannot be serialized.
pub(super) fn stored(
    key: &[u8; 32],
    tenant: &str,
    request: &ExecutionRequest,
) -> Result<Vec<u8>, serde_json::Error> {
    if !needs_proof(request) {
        return serde_json::to_vec(request);
    }
    let request = serde_json::to_string(request)?;
    let granted = hex::encode(&proof(key, tenant, &request));
    serde_json::to_vec(&StoredGrants { granted, request })
}

/// Decodes a request that was stored for this tenant.
///
/// # Errors
/// The reason why it may not be run.
pub(super) fn request(
    key: &[u8; 32],
    tenant: &str,
    stored: &[u8],
) -> Result<ExecutionRequest, String> {
    let malformed = |error| format!("its request is malformed: {error}");
    let Ok(StoredGrants { granted, request }) = serde_json::from_slice(stored) else {
        let request: ExecutionRequest = serde_json::from_slice(stored).map_err(malformed)?;
        return match needs_proof(&request) {
            false => Ok(request),
            true => {
                Err("grants: the job was not submitted by a token that may create them".to_owned())
            }
        };
    };
    let is_proven = (undigits(&granted)).is_some_and(|proof| {
        mac(key, tenant, &request).is_some_and(|it| it.verify_slice(&proof).is_ok())
    });
    if !is_proven {
        return Err("grants: they differ from those that the job was submitted with".to_owned());
    }
    serde_json::from_str(&request).map_err(malformed)
}

/// Returns whether a request contains something that requires authorization.
fn needs_proof(request: &ExecutionRequest) -> bool {
    !request.grants.is_empty() || request.template.is_some()
}

/// Returns whether a stored request is interactive. Reads no other field, and grants nothing based
/// on the result.
pub(crate) fn is_interactive(stored: &[u8]) -> bool {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct GrantedShape {
        interactive: bool,
    }
    let shape = match serde_json::from_slice(stored) {
        Ok(StoredGrants { request, .. }) => serde_json::from_str::<GrantedShape>(&request),
        Err(_) => serde_json::from_slice(stored),
    };
    shape.is_ok_and(|shape| shape.interactive)
}

fn mac(key: &[u8; 32], tenant: &str, request: &str) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    for part in [ABOUT, tenant.as_bytes(), request.as_bytes()] {
        // Prefixed with its length, so that different lists of parts never collide.
        mac.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
        mac.update(part);
    }
    Some(mac)
}

/// Returns a proof; empty, which proves nothing, for an invalid key.
fn proof(key: &[u8; 32], tenant: &str, request: &str) -> Vec<u8> {
    mac(key, tenant, request).map_or_else(Vec::new, |mac| mac.finalize().into_bytes().to_vec())
}

fn undigits(digits: &str) -> Option<Vec<u8>> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.as_bytes().chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn only_what_was_stored_comes_back_with_grants() {
        let key = [7; 32];
        let granted = ExecutionRequest {
            grants: vec![api::Grant::Model(api::ModelGrant::default())],
            ..ExecutionRequest::default()
        };
        let proven = stored(&key, "a", &granted).unwrap();
        assert_eq!(request(&key, "a", &proven), Ok(granted.clone()));
        // Independent of a back end's JSON formatting.
        let value: Value = serde_json::from_slice(&proven).unwrap();
        let anew = serde_json::to_vec_pretty(&value).unwrap();
        assert_eq!(request(&key, "a", &anew), Ok(granted.clone()));
        let plain = serde_json::to_vec(&granted).unwrap();
        let with = |name: &str, text: &str| {
            let mut value = value.clone();
            value[name] = text.into();
            serde_json::to_vec(&value).unwrap()
        };
        let more = String::from_utf8(plain.clone()).unwrap().replace("model", "model ");
        for (key, tenant, stored) in [
            (&key, "b", &proven),
            (&[8; 32], "a", &proven),
            (&key, "a", &plain),
            (&key, "a", &with("granted", "")),
            (&key, "a", &with("granted", "0")),
            (&key, "a", &with("granted", "xy")),
            (&key, "a", &with("request", &more)),
        ] {
            let refused = request(key, tenant, stored).unwrap_err();
            assert!(refused.starts_with("grants: "), "{refused}");
        }
        for length in 0..proven.len() {
            assert!(request(&key, "a", &proven[..length]).is_err(), "{length}");
        }
        // Interactive requests are recognised with grants and without.
        for grants in [granted.grants, Vec::new()] {
            for interactive in [true, false] {
                let grants = grants.clone();
                let stored_request =
                    ExecutionRequest { interactive, grants, ..ExecutionRequest::default() };
                assert_eq!(
                    is_interactive(&stored(&key, "a", &stored_request).unwrap()),
                    interactive
                );
            }
        }
        assert!(!is_interactive(b"{}") && !is_interactive(b"?"));
        // Without grants there is nothing to prove.
        let plain = ExecutionRequest::default();
        let text = stored(&key, "a", &plain).unwrap();
        assert_eq!(text, serde_json::to_vec(&plain).unwrap());
        assert_eq!(request(&[8; 32], "b", &text), Ok(plain));
    }
}
