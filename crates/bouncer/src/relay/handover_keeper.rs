//! Holder of a process's handover until the next process can receive it.
//!
//! A whole server can start only when the one before has exited, because both have one data
//! directory. So the next server first starts a helper process, which requests the listeners and
//! clients of the former one and holds them. It is a process and not a thread, because the server
//! is about to fork its spawners, and these must not inherit any client's socket.
//!
//! The keeper communicates with the server over a socket pair. It first sends the process id of the
//! former server, or zeros if there is none. Then it sends the messages of a handover, as the
//! former process would have sent them.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child;
use std::sync::mpsc::channel;

use super::{accept, succession, takeover};

/// Bytes of a process id on its way to the server, in network order.
const PID_BYTES: usize = 4;

/// A former process whose listeners and clients are kept.
#[derive(Debug)]
pub struct KeptHandover {
    pub(super) stream: UnixStream,
    /// The keeper, which exits when it has passed on everything.
    pub(super) keeper: Child,
    former: u32,
}

impl KeptHandover {
    /// Waits until a keeper reports which process it follows; `None` if there is none.
    ///
    /// # Errors
    /// If the keeper ended because the former process could not be followed.
    pub fn from_keeper(
        mut stream: UnixStream,
        mut keeper: Child,
    ) -> io::Result<Option<KeptHandover>> {
        let mut pid = [0; PID_BYTES];
        let heard = stream.read_exact(&mut pid);
        let former = u32::from_be_bytes(pid);
        if heard.is_err() || former == 0 {
            keeper.wait()?;
            return heard.map(|()| None);
        }
        Ok(Some(KeptHandover { stream, keeper, former }))
    }

    /// Returns the process id of the former process.
    #[must_use]
    pub fn former(&self) -> u32 {
        self.former
    }
}

/// Requests the handover from the process that listens at a socket file, and keeps it for the
/// server at the other end of a stream. Returns when everything is passed on. If that server ends
/// before it takes the clients over, they receive an error that asks them to reconnect.
///
/// # Errors
/// If the former process cannot be followed, or ends prematurely.
pub fn keep_handover(socket: &Path, mut server: UnixStream) -> io::Result<()> {
    accept::raise_descriptor_limit();
    let Some(mut former) = takeover::follow(socket)? else {
        return server.write_all(&[0; PID_BYTES]);
    };
    let credentials = rustix::net::sockopt::socket_peercred(&former)?;
    server.write_all(&credentials.pid.as_raw_nonzero().get().to_be_bytes())?;
    // Clients arrive as their transactions end, however long the server needs to start.
    former.set_read_timeout(None)?;
    let (sender, messages) = channel();
    let reader =
        std::thread::Builder::new().name("bouncer-former".to_owned()).spawn(move || {
            while let Some(message) = takeover::receive(&mut former)? {
                if sender.send(message).is_err() {
                    break;
                }
            }
            Ok(())
        })?;
    succession::pass_on(&mut server, &messages);
    reader.join().unwrap_or_else(|_| Err(io::Error::other("the thread that reads panicked")))
}
