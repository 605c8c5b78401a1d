//! Questions to the client: a call that needs input ends with its questions, and the client repeats
//! it with the answers (`InputRequiredResult`). The server stores nothing meanwhile: the state of a
//! tool travels with the client, under a seal.
//!
//! # References
//! - <https://modelcontextprotocol.io/specification/2026-07-28/basic/utilities/mrtr>

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::{Map, Value, json};

use crate::message::{McpError, RpcRequest};

/// Longest state, in bytes.
pub const STATE_BYTES_MAX: usize = 16 << 10;

/// Bytes of a seal: HMAC-SHA256.
const SEAL_BYTES: usize = 32;

/// Kind of a question to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputMethod {
    /// The client's user, by a form.
    Elicitation,
    /// The client's model.
    Sampling,
    /// The client's directories.
    Roots,
}

impl InputMethod {
    const fn name(self) -> &'static str {
        match self {
            InputMethod::Elicitation => "elicitation/create",
            InputMethod::Sampling => "sampling/createMessage",
            InputMethod::Roots => "roots/list",
        }
    }

    const fn capability(self) -> &'static str {
        match self {
            InputMethod::Elicitation => "elicitation",
            InputMethod::Sampling => "sampling",
            InputMethod::Roots => "roots",
        }
    }
}

/// Questions of a call, and the state that it needs when they are answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NeededInput {
    questions: Vec<InputQuestion>,
    state: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
struct InputQuestion {
    key: String,
    method: InputMethod,
    params: Value,
}

impl NeededInput {
    /// Adds a question; its answer will have this key.
    #[must_use]
    pub fn ask(mut self, key: &str, method: InputMethod, params: Value) -> NeededInput {
        self.questions.push(InputQuestion { key: key.to_owned(), method, params });
        self
    }

    /// Sets the state of the call. The client can read it, but not change it.
    #[must_use]
    pub fn remember(self, state: &str) -> NeededInput {
        NeededInput { state: Some(state.to_owned()), ..self }
    }

    /// Returns the result, for a client with these capabilities.
    ///
    /// # Errors
    /// If the client has not declared a capability that a question needs.
    pub(crate) fn into_result(
        self,
        capabilities: &Map<String, Value>,
        sealer: &StateSealer,
        request: &RpcRequest,
        tenant: &str,
    ) -> Result<Value, McpError> {
        let missing: Map<String, Value> = self
            .questions
            .iter()
            .map(|question| question.method.capability())
            .filter(|capability| !capabilities.contains_key(*capability))
            .map(|capability| (capability.to_owned(), json!({})))
            .collect();
        if !missing.is_empty() {
            return Err(McpError::missing_capability(missing));
        }
        let questions: Map<String, Value> = self
            .questions
            .into_iter()
            .map(|InputQuestion { key, method, params }| {
                (key, json!({ "method": method.name(), "params": params }))
            })
            .collect();
        let mut result = json!({ "resultType": "input_required", "inputRequests": questions });
        if let (Some(state), Some(fields)) = (self.state, result.as_object_mut()) {
            fields.insert("requestState".to_owned(), sealer.seal(request, tenant, &state).into());
        }
        Ok(result)
    }
}

/// Returns the answers in a request.
///
/// # Errors
/// If they are not objects.
pub(crate) fn answers(params: &Map<String, Value>) -> Result<Map<String, Value>, McpError> {
    match params.get("inputResponses") {
        None => Ok(Map::new()),
        Some(Value::Object(answers)) if answers.values().all(Value::is_object) => {
            Ok(answers.clone())
        }
        Some(_) => Err(McpError::params("`inputResponses` must be an object of objects")),
    }
}

/// Seals states, so that a returned state is an issued one, for the same tenant and the same
/// request. The key belongs to the process: a state of another server, or from before a restart, is
/// rejected, and the client starts again.
#[derive(Clone, Debug)]
pub(crate) struct StateSealer(hmac::Key);

impl StateSealer {
    pub(crate) fn new(key: &[u8; 32]) -> StateSealer {
        StateSealer(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    fn seal(&self, request: &RpcRequest, tenant: &str, state: &str) -> String {
        let seal = hmac::sign(&self.0, &sealed(request, tenant, state.as_bytes()));
        URL_SAFE_NO_PAD.encode([seal.as_ref(), state.as_bytes()].concat())
    }

    /// Returns the state of a request, if it has one.
    ///
    /// # Errors
    /// If it was not issued for this request.
    pub(crate) fn open(
        &self,
        request: &RpcRequest,
        tenant: &str,
    ) -> Result<Option<String>, McpError> {
        let refused = || McpError::params("`requestState` is none that was issued for this");
        let Some(state_text) = request.params.get("requestState") else { return Ok(None) };
        let state_text =
            state_text.as_str().filter(|state_text| state_text.len() <= 2 * STATE_BYTES_MAX);
        let bytes = state_text.and_then(|state_text| URL_SAFE_NO_PAD.decode(state_text).ok());
        let bytes = bytes.ok_or_else(refused)?;
        let (seal, state) = bytes.split_at_checked(SEAL_BYTES).ok_or_else(refused)?;
        hmac::verify(&self.0, &sealed(request, tenant, state), seal).map_err(|_| refused())?;
        String::from_utf8(state.to_vec()).map(Some).map_err(|_| refused())
    }
}

/// Encodes the sealed bytes: lengths separate the parts.
fn sealed(request: &RpcRequest, tenant: &str, state: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in [request.method.as_bytes(), request.subject().unwrap_or("").as_bytes()] {
        bytes.extend((part.len() as u64).to_be_bytes());
        bytes.extend(part);
    }
    bytes.extend((tenant.len() as u64).to_be_bytes());
    bytes.extend(tenant.as_bytes());
    bytes.extend(state);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{ClientBody, ClientRpc, MISSING_CAPABILITY, read};

    fn request(name: &str, state: Option<&str>) -> RpcRequest {
        let params = match state {
            Some(state) => json!({ "name": name, "requestState": state }),
            None => json!({ "name": name }),
        };
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        match read(body.to_string().as_bytes()) {
            Ok(ClientBody::One(Ok(ClientRpc::Request(request)))) => request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_state_comes_back_as_it_was_given_out_or_not_at_all() {
        let sealer = StateSealer::new(&[7; 32]);
        let sealed = sealer.seal(&request("a", None), "shop", "step 2");
        let open = |name: &str, tenant: &str, state: &str| {
            sealer.open(&request(name, Some(state)), tenant).ok().flatten()
        };
        assert_eq!(open("a", "shop", &sealed).as_deref(), Some("step 2"));
        let mut forged = sealed.clone();
        forged.push_str("AAAA");
        for (name, tenant, state) in [
            ("b", "shop", &*sealed),
            ("a", "other", &sealed),
            ("a", "shop", &forged),
            ("a", "shop", "x"),
        ] {
            assert_eq!(open(name, tenant, state), None, "{name} {tenant} {state}");
        }
        let of_another = StateSealer::new(&[8; 32]).seal(&request("a", None), "shop", "step 2");
        assert_eq!(open("a", "shop", &of_another), None);
        assert_eq!(sealer.open(&request("a", None), "shop"), Ok(None));
    }

    #[test]
    fn a_client_is_asked_what_it_has_declared() {
        let sealer = StateSealer::new(&[7; 32]);
        let needed = NeededInput::default().ask("k", InputMethod::Sampling, json!({}));
        let none = needed.clone().into_result(&Map::new(), &sealer, &request("a", None), "shop");
        assert_eq!(none.unwrap_err().code, MISSING_CAPABILITY);
        let declared = Map::from_iter([("sampling".to_owned(), json!({}))]);
        let result = needed.into_result(&declared, &sealer, &request("a", None), "shop").unwrap();
        assert_eq!(result["inputRequests"]["k"]["method"], "sampling/createMessage");
    }
}
