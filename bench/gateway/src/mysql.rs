//! One connection to `MySQL` or `MariaDB`, by `COM_QUERY`:
//! <https://mariadb.com/kb/en/clientserver-protocol/>.

use std::io::{Read, Write};
use std::net::TcpStream;

use wire::mysql::auth::{NativeKey, AuthNonce as Nonce};

use crate::options::Options;
use crate::{Broken, Talk};

/// `CLIENT_CONNECT_WITH_DB`, `CLIENT_PROTOCOL_41`, `CLIENT_TRANSACTIONS`,
/// `CLIENT_SECURE_CONNECTION` and `CLIENT_PLUGIN_AUTH`.
const CAPABILITIES: u32 = 1 << 3 | 1 << 9 | 1 << 13 | 1 << 15 | 1 << 19;
const PACKET_BYTES_MAX: u32 = 1 << 24;
const UTF8: u8 = 33;
const PLUGIN: &str = "mysql_native_password";
const QUERY: u8 = 3;
const QUIT: u8 = 1;
const OK: u8 = 0;
const END: u8 = 0xFE;
const ERROR: u8 = 0xFF;
/// `ER_CON_COUNT_ERROR`, also after too long a wait for a connection.
const TOO_MANY: u16 = 1040;

pub(crate) struct Client {
    stream: TcpStream,
    unread: Vec<u8>,
    sequence: u8,
}

impl Client {
    pub(crate) fn new(stream: TcpStream, options: &Options) -> Result<Client, Broken> {
        let mut client = Client { stream, unread: Vec::new(), sequence: 0 };
        let greeting = client.packet()?;
        let nonce = nonce_of(&greeting).ok_or_else(|| told(&greeting))?;
        let proved = proof(&options.password, &nonce);
        let mut answer = CAPABILITIES.to_le_bytes().to_vec();
        answer.extend(PACKET_BYTES_MAX.to_le_bytes());
        answer.push(UTF8);
        answer.extend([0; 23]);
        answer.extend([options.user.as_bytes(), b"\0"].concat());
        answer.push(u8::try_from(proved.len()).unwrap_or(0));
        answer.extend(proved);
        answer.extend([options.database.as_bytes(), b"\0", PLUGIN.as_bytes(), b"\0"].concat());
        client.send(&answer)?;
        loop {
            let said = client.packet()?;
            match said.first() {
                Some(&OK) => return Ok(client),
                // Another method, or the same one with another nonce.
                Some(&END) => {
                    let named = [&[END], PLUGIN.as_bytes(), b"\0"].concat();
                    let nonce = said.strip_prefix(&named[..]).and_then(Nonce::parse);
                    let nonce = nonce.ok_or_else(|| told(&said))?;
                    client.send(&proof(&options.password, &nonce))?;
                }
                _ => return Err(told(&said)),
            }
        }
    }

    fn send(&mut self, body: &[u8]) -> Result<(), Broken> {
        let length = u32::try_from(body.len()).unwrap_or(0).to_le_bytes();
        let head = [length[0], length[1], length[2], self.sequence];
        self.sequence = self.sequence.wrapping_add(1);
        Ok(self.stream.write_all(&[&head, body].concat())?)
    }

    fn packet(&mut self) -> Result<Vec<u8>, Broken> {
        loop {
            if let [a, b, c, sequence, ..] = self.unread[..] {
                let end = u32::from_le_bytes([a, b, c, 0]) as usize + 4;
                if self.unread.len() >= end {
                    self.sequence = sequence.wrapping_add(1);
                    let body = self.unread[4..end].to_vec();
                    self.unread.drain(..end);
                    return Ok(body);
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

/// Returns the nonce of a greeting (version 10); none for any other packet, such as a refusal.
fn nonce_of(greeting: &[u8]) -> Option<Nonce> {
    let after = greeting.strip_prefix(&[10])?;
    let version_end = after.iter().position(|byte| *byte == 0)?;
    // The connection's number, 8 bytes of the nonce, 19 bytes of the server's capabilities and
    // status, and the rest of the nonce.
    let rest = after.get(version_end + 1..)?;
    Nonce::parse(&[rest.get(4..12)?, rest.get(31..43)?].concat())
}

/// Returns the proof of the password; an empty password has an empty proof.
fn proof(password: &str, nonce: &Nonce) -> Vec<u8> {
    match password {
        "" => Vec::new(),
        password => NativeKey::of(password).answer(nonce).to_vec(),
    }
}

impl Talk for Client {
    fn ask(&mut self, statement: &str, expected: &str) -> Result<(), Broken> {
        self.sequence = 0;
        self.send(&[&[QUERY], statement.as_bytes()].concat())?;
        let columns = self.packet()?;
        if columns != [1] {
            return Err(told(&columns));
        }
        // The column, the end of columns, the row, the end of rows.
        let answer = [self.packet()?, self.packet()?, self.packet()?, self.packet()?];
        let length = u8::try_from(expected.len()).unwrap_or(0);
        let row = [&[length], expected.as_bytes()].concat();
        let ends = [&answer[1], &answer[3]].map(|packet| packet.first() == Some(&END));
        match answer[2] == row && ends == [true, true] {
            true => Ok(()),
            false => Err(Broken::Wrong(format!("{statement} answered {answer:?}"))),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.sequence = 0;
        // Clients quit like this; on a broken connection the send may fail.
        self.send(&[QUIT]).ok();
    }
}

/// Returns the error in a packet that is not an answer: the server's, or an unexpected packet.
fn told(packet: &[u8]) -> Broken {
    match packet {
        [ERROR, a, b, text @ ..] => {
            let code = u16::from_le_bytes([*a, *b]);
            let text = format!("{code} {}", String::from_utf8_lossy(text));
            if code == TOO_MANY { Broken::Refused(text) } else { Broken::Wrong(text) }
        }
        packet => Broken::Wrong(format!("an answer of {packet:?}")),
    }
}
