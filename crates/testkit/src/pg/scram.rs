//! Client side of SCRAM-SHA-256 (RFC 5802, RFC 7677), without channel binding.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac as _};
use sha2::{Digest as _, Sha256};

/// Header for a client without support for channel binding.
const HEADER: &str = "n,,";
/// Constant nonce, which is sufficient for tests.
const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";

/// One login.
#[derive(Debug)]
pub(super) struct Exchange {
    password: String,
    /// Signature that proves the server's knowledge of the password.
    signature: Vec<u8>,
}

impl Exchange {
    pub(super) fn new(password: &str) -> Exchange {
        Exchange { password: password.to_owned(), signature: Vec::new() }
    }

    /// Returns the first message; PostgreSQL takes the user's name from the startup message.
    pub(super) fn first(&self) -> String {
        format!("{HEADER}n=,r={NONCE}")
    }

    /// Returns the final message, in response to the server's challenge.
    pub(super) fn answer(&mut self, question: &str) -> String {
        let field = |letter: &str| {
            let mut fields = question.split(',').filter_map(|field| field.strip_prefix(letter));
            fields.next().unwrap_or_else(|| panic!("no {letter} in {question}")).to_owned()
        };
        let salt = STANDARD.decode(field("s=")).expect("a salt");
        let rounds: u32 = field("i=").parse().expect("a number of rounds");
        let nonce = field("r=");
        assert!(nonce.starts_with(NONCE), "the server answers somebody else");
        let salted = salted(self.password.as_bytes(), &salt, rounds);
        let without_proof = format!("c={},r={nonce}", STANDARD.encode(HEADER));
        let said = format!("n=,r={NONCE},{question},{without_proof}");
        let client_key = sign(&salted, b"Client Key");
        let stored_key = Sha256::digest(&client_key);
        let signature = sign(&stored_key, said.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        self.signature = sign(&sign(&salted, b"Server Key"), said.as_bytes());
        format!("{without_proof},p={}", STANDARD.encode(proof))
    }

    /// Returns whether the server's last message proves its knowledge of the password.
    pub(super) fn is_server(&self, last: &[u8]) -> bool {
        format!("v={}", STANDARD.encode(&self.signature)).as_bytes() == last
    }
}

fn sign(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key may have any length");
    mac.update(text);
    mac.finalize().into_bytes().to_vec()
}

/// PBKDF2 for one block (RFC 8018, 5.2).
fn salted(password: &[u8], salt: &[u8], rounds: u32) -> Vec<u8> {
    let mut last = sign(password, &[salt, &1_u32.to_be_bytes()].concat());
    let mut all = last.clone();
    for _ in 1..rounds {
        last = sign(password, &last);
        all.iter_mut().zip(&last).for_each(|(all, last)| *all ^= last);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7677, section 3, for all values that do not depend on the client's nonce.
    #[test]
    fn the_password_is_salted_as_specified() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let salted = salted(b"pencil", &salt, 4096);
        let said = "n=user,r=rOprNGfwEbeRWgbNEkqO,\
                    r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                    s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,\
                    c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let signature = sign(&sign(&salted, b"Server Key"), said.as_bytes());
        assert_eq!(STANDARD.encode(signature), "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }
}
