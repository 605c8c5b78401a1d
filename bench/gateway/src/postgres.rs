//! One connection to `PostgreSQL`, by simple queries:
//! <https://www.postgresql.org/docs/current/protocol.html>.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;

use wire::pg::scram;

use crate::options::Options;
use crate::{Broken, Talk};

const PROTOCOL: u32 = 3 << 16;
/// `too_many_connections`, also after too long a wait for a connection.
const TOO_MANY: &str = "53300";

pub(crate) struct Client {
    stream: TcpStream,
    unread: Vec<u8>,
    question: Vec<u8>,
}

impl Client {
    pub(crate) fn new(stream: TcpStream, options: &Options) -> Result<Client, Broken> {
        let mut client = Client { stream, unread: Vec::new(), question: Vec::new() };
        let words = format!("user\0{}\0database\0{}\0\0", options.user, options.database);
        let length = u32::try_from(words.len() + 8).unwrap_or(0);
        let start = [&length.to_be_bytes()[..], &PROTOCOL.to_be_bytes(), words.as_bytes()];
        client.stream.write_all(&start.concat())?;
        loop {
            match client.message()? {
                (b'R', body) => client.authenticate(&body, &options.password)?,
                (b'E', body) => return Err(told(&body)),
                (b'Z', _) => return Ok(client),
                _ => {}
            }
        }
    }

    fn authenticate(&mut self, body: &[u8], password: &str) -> Result<(), Broken> {
        match body {
            // AuthenticationOk.
            [0, 0, 0, 0] => return Ok(()),
            // AuthenticationSASL.
            [0, 0, 0, 10, ..] => {}
            _ => return Err(Broken::Wrong(format!("asked for {body:?}"))),
        }
        let wrong = |error: scram::ScramError| Broken::Wrong(error.to_string());
        let mut nonce = [0; scram::NONCE_BYTES];
        File::open("/dev/urandom")?.read_exact(&mut nonce)?;
        let exchange = scram::ScramClient::new(scram::ChannelBinding::Unbound, nonce);
        let first = exchange.first();
        let length = u32::try_from(first.len()).unwrap_or(0).to_be_bytes();
        let mechanism = [exchange.mechanism().as_bytes(), b"\0", &length, first.as_bytes()];
        self.send(b'p', &mechanism.concat())?;
        let challenge = exchange.challenge(&self.proof(11)?).map_err(wrong)?;
        let keys = scram::ScramKeys::derive(password, &challenge.salt, challenge.iterations);
        let (answer, expected) = challenge.answer(&keys);
        self.send(b'p', answer.as_bytes())?;
        expected.check(&self.proof(12)?).map_err(wrong)
    }

    /// Returns the text of a step of the exchange.
    fn proof(&mut self, step: u8) -> Result<Vec<u8>, Broken> {
        match self.message()? {
            (b'R', body) if body.starts_with(&[0, 0, 0, step]) => Ok(body[4..].to_vec()),
            (_, body) => Err(told(&body)),
        }
    }

    fn send(&mut self, kind: u8, body: &[u8]) -> Result<(), Broken> {
        self.question.clear();
        self.question.push(kind);
        let length = u32::try_from(body.len() + 4).unwrap_or(0);
        self.question.extend(length.to_be_bytes());
        self.question.extend(body);
        Ok(self.stream.write_all(&self.question)?)
    }

    /// Returns the next message: its type and its body.
    fn message(&mut self) -> Result<(u8, Vec<u8>), Broken> {
        loop {
            if let [kind, a, b, c, d, ..] = self.unread[..] {
                let end = u32::from_be_bytes([a, b, c, d]) as usize + 1;
                if self.unread.len() >= end {
                    let body = self.unread[5..end].to_vec();
                    self.unread.drain(..end);
                    return Ok((kind, body));
                }
            }
            let mut piece = [0; 4096];
            match self.stream.read(&mut piece)? {
                0 => return Err(Broken::Wrong("the connection ended".to_owned())),
                count => self.unread.extend(&piece[..count]),
            }
        }
    }
}

impl Talk for Client {
    fn ask(&mut self, statement: &str, expected: &str) -> Result<(), Broken> {
        self.send(b'Q', &[statement.as_bytes(), b"\0"].concat())?;
        let (mut rows, mut error) = (Vec::new(), None);
        loop {
            match self.message()? {
                (b'D', body) => rows.push(body),
                (b'E', body) => error = Some(told(&body)),
                (b'Z', _) => break,
                _ => {}
            }
        }
        if let Some(error) = error {
            return Err(error);
        }
        let length = u32::try_from(expected.len()).unwrap_or(0).to_be_bytes();
        match rows == [[&[0, 1], &length[..], expected.as_bytes()].concat()] {
            true => Ok(()),
            false => Err(Broken::Wrong(format!("{statement} answered {rows:?}"))),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Clients terminate like this; on a broken connection the send may fail.
        self.send(b'X', b"").ok();
    }
}

/// Returns the error in the server's message.
fn told(body: &[u8]) -> Broken {
    let field = |name: u8| {
        let found = body.split(|byte| *byte == 0).find(|field| field.first() == Some(&name));
        String::from_utf8_lossy(found.and_then(|field| field.get(1..)).unwrap_or_default())
            .into_owned()
    };
    let text = format!("{} {}", field(b'C'), field(b'M'));
    if field(b'C') == TOO_MANY { Broken::Refused(text) } else { Broken::Wrong(text) }
}
