//! Frames between the server and a guest init that holds a session.
//!
//! Every frame has a kind, an id, and a body that depends on the kind. The server chooses the id of
//! a request; the answer has the same id, and so has the end of a program that the request started.

use std::time::Duration;

use super::{MalformedMessage, MessageReader, MessageWriter, StreamSetup};
use crate::failure::StepFailure;

/// First byte of a frame to the guest init. Disjoint from those of commands.
pub(crate) mod to_session {
    /// Limits and mounts; the first frame, and only once.
    pub(crate) const SET_UP: u8 = 16;
    /// Start a program, with the whole frame.
    pub(crate) const START: u8 = 17;
    /// Start a program; this frame has only its streams, and the whole frame is in the last
    /// descriptor.
    pub(crate) const START_IN_FILE: u8 = 18;
    /// Send a signal to a program.
    pub(crate) const SIGNAL: u8 = 19;
    /// Report the resource usage.
    pub(crate) const USAGE: u8 = 20;
    /// Connect to a port of the loopback.
    pub(crate) const CONNECT: u8 = 21;
    /// Listen on a port of the loopback.
    pub(crate) const LISTEN: u8 = 22;
    /// Stop every program.
    pub(crate) const FREEZE: u8 = 23;
    /// Resume every program.
    pub(crate) const THAW: u8 = 24;
    /// Start the file helper.
    pub(crate) const FILES: u8 = 25;
    /// Set the processor share to a whole share divided by a number.
    pub(crate) const CPU_SHARE: u8 = 26;
}

/// First byte of a frame from the guest init.
pub(crate) mod from_session {
    /// A request was carried out.
    pub(crate) const DONE: u8 = 16;
    /// A request was refused.
    pub(crate) const REFUSED: u8 = 17;
    /// The program of a request has ended.
    pub(crate) const ENDED: u8 = 18;
}

/// Limits of all programs of a session together, and of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionSandboxLimits {
    /// Memory of all processes together, page cache of their files and `/tmp` included, in bytes.
    pub memory_bytes: u64,
    /// Processes and threads at one time.
    pub processes: u64,
    /// Open file descriptors of one process; at most the host's limit.
    pub open_files: u64,
    /// Size of one written file, in bytes.
    pub file_size_bytes: u64,
    /// Bytes in `/tmp` and `/dev/shm` together.
    pub tmp_bytes: u64,
    /// Files and directories in them.
    pub tmp_inodes: u64,
    /// Main thread's stack, in bytes.
    pub stack_bytes: u64,
}

impl Default for SessionSandboxLimits {
    /// Room for an agent and its tools: 2 GiB of memory, 512 processes.
    fn default() -> Self {
        SessionSandboxLimits {
            memory_bytes: 2 << 30,
            processes: 512,
            open_files: 4096,
            file_size_bytes: 8 << 30,
            tmp_bytes: 512 << 20,
            tmp_inodes: 64 << 10,
            stack_bytes: 8 << 20,
        }
    }
}

impl SessionSandboxLimits {
    fn fields(&self) -> [u64; 7] {
        [
            self.memory_bytes,
            self.processes,
            self.open_files,
            self.file_size_bytes,
            self.tmp_bytes,
            self.tmp_inodes,
            self.stack_bytes,
        ]
    }

    /// Encodes the frame that sets a session up.
    pub(crate) fn encode(&self, id: u64) -> Vec<u8> {
        self.write(MessageWriter::new(to_session::SET_UP).u64(id)).finish()
    }

    /// Encodes the limits.
    pub(crate) fn write(&self, w: MessageWriter) -> MessageWriter {
        self.fields().into_iter().fold(w, MessageWriter::u64)
    }

    /// Decodes the limits.
    pub(crate) fn read(r: &mut MessageReader<'_>) -> Result<Self, MalformedMessage> {
        Ok(SessionSandboxLimits {
            memory_bytes: r.u64()?,
            processes: r.u64()?,
            open_files: r.u64()?,
            file_size_bytes: r.u64()?,
            tmp_bytes: r.u64()?,
            tmp_inodes: r.u64()?,
            stack_bytes: r.u64()?,
        })
    }
}

/// A program to start. Borrowed from the received frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StartProgram<'a> {
    pub(crate) streams: StreamSetup,
    /// Working directory; relative to the workspace.
    pub(crate) directory: &'a [u8],
    pub(crate) argv: Vec<&'a [u8]>,
    pub(crate) env: Vec<&'a [u8]>,
}

impl<'a> StartProgram<'a> {
    /// Encodes the frame that refers to a whole one in a file.
    pub(crate) fn encode_in_file(&self, id: u64) -> Vec<u8> {
        self.streams.encode(MessageWriter::new(to_session::START_IN_FILE).u64(id)).finish()
    }

    /// Encodes the whole frame.
    pub(crate) fn encode(&self, id: u64) -> Vec<u8> {
        let frame = MessageWriter::new(to_session::START).u64(id);
        let mut w = self.streams.encode(frame).bytes(self.directory);
        for list in [&self.argv, &self.env] {
            w = w.u32(u32::try_from(list.len()).unwrap_or(u32::MAX));
            w = list.iter().fold(w, |w, item| w.bytes(item));
        }
        w.finish()
    }

    /// Decodes the frame, from after the id.
    pub(crate) fn decode(r: &mut MessageReader<'a>) -> Result<Self, MalformedMessage> {
        let streams = Self::decode_streams(r)?;
        let directory = r.bytes()?;
        let mut list = || -> Result<Vec<&'a [u8]>, MalformedMessage> {
            (0..r.count()?).map(|_| r.bytes()).collect()
        };
        Ok(StartProgram { streams, directory, argv: list()?, env: list()? })
    }

    /// Decodes the streams, which come first.
    pub(crate) fn decode_streams(
        r: &mut MessageReader<'_>,
    ) -> Result<StreamSetup, MalformedMessage> {
        StreamSetup::decode(r)
    }
}

/// Resource usage of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SandboxUsage {
    /// CPU time of all processes since the session was set up.
    pub cpu: Duration,
    /// Memory in use, page cache of its files included, in bytes.
    pub memory_bytes: u64,
    /// Peak of the memory; 0 if the kernel does not report it.
    pub memory_peak_bytes: u64,
    /// Number of processes and threads, including the one that waits for the next program and the
    /// file helper's.
    pub processes: u64,
    /// Processes killed for lack of memory.
    pub oom_kills: u64,
}

impl SandboxUsage {
    pub(crate) fn encode(&self, w: MessageWriter) -> MessageWriter {
        w.duration(self.cpu)
            .u64(self.memory_bytes)
            .u64(self.memory_peak_bytes)
            .u64(self.processes)
            .u64(self.oom_kills)
    }

    pub(crate) fn decode(r: &mut MessageReader<'_>) -> Result<Self, MalformedMessage> {
        Ok(SandboxUsage {
            cpu: r.duration()?,
            memory_bytes: r.u64()?,
            memory_peak_bytes: r.u64()?,
            processes: r.u64()?,
            oom_kills: r.u64()?,
        })
    }
}

/// End of a session's program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessEnd {
    /// Exit code, if the program exited.
    pub code: Option<i32>,
    /// Signal number, if a signal killed it.
    pub signal: Option<i32>,
    /// Errno of `execve`, if the program could not be executed.
    pub exec_errno: Option<i32>,
    /// Errno of entering the working directory, if that failed.
    pub directory_errno: Option<i32>,
    /// Another step before the program failed; the sandbox is to blame.
    pub failure: Option<StepFailure>,
    /// Processes of the session killed for lack of memory while the program ran.
    pub oom_kills: u64,
}

impl ProcessEnd {
    /// Encodes the whole frame.
    pub(crate) fn encode(&self, id: u64) -> Vec<u8> {
        let mut w = MessageWriter::new(from_session::ENDED).u64(id);
        for value in [self.code, self.signal, self.exec_errno, self.directory_errno] {
            w = w.u8(value.is_some().into()).u32(value.unwrap_or(0).cast_unsigned());
        }
        w = w.u64(self.oom_kills);
        if let Some(failure) = &self.failure {
            w = w.bytes(&failure.encode(0));
        }
        w.finish()
    }

    /// Decodes the frame, from after the id.
    pub(crate) fn decode(r: &mut MessageReader<'_>) -> Result<Self, MalformedMessage> {
        let mut some = || -> Result<Option<i32>, MalformedMessage> {
            let (present, value) = (r.u8()? != 0, r.i32()?);
            Ok(present.then_some(value))
        };
        let [code, signal, exec_errno, directory_errno] = [some()?, some()?, some()?, some()?];
        let oom_kills = r.u64()?;
        let failure = match r.is_empty() {
            true => None,
            false => {
                let mut inner = MessageReader(r.bytes()?);
                inner.u8()?;
                Some(StepFailure::decode(&mut inner)?)
            }
        };
        Ok(ProcessEnd { code, signal, exec_errno, directory_errno, failure, oom_kills })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::TerminalDimensions;

    fn start() -> StartProgram<'static> {
        StartProgram {
            streams: StreamSetup::Terminal(TerminalDimensions { rows: 24, cols: 80 }),
            directory: b"/tmp",
            argv: vec![b"/bin/sh", b"-c", b"\xff"],
            env: vec![b"A=1"],
        }
    }

    fn end() -> ProcessEnd {
        ProcessEnd {
            signal: Some(9),
            failure: Some(StepFailure { step: "x".into(), errno: 5 }),
            oom_kills: 3,
            ..ProcessEnd::default()
        }
    }

    /// Frames decode to the encoded values, after the id.
    #[test]
    fn frames_survive_the_wire() {
        let read = |bytes: &[u8], kind| {
            let mut r = MessageReader(bytes);
            assert_eq!((r.u8().unwrap(), r.u64().unwrap()), (kind, 7));
        };
        let bytes = start().encode(7);
        read(&bytes, to_session::START);
        assert_eq!(StartProgram::decode(&mut MessageReader(&bytes[9..])).unwrap(), start());
        let limits = SessionSandboxLimits {
            processes: 9,
            stack_bytes: 1,
            ..SessionSandboxLimits::default()
        };
        let bytes = limits.encode(7);
        read(&bytes, to_session::SET_UP);
        assert_eq!(SessionSandboxLimits::read(&mut MessageReader(&bytes[9..])).unwrap(), limits);
        for end in [end(), ProcessEnd { code: Some(0), ..ProcessEnd::default() }] {
            let bytes = end.encode(7);
            read(&bytes, from_session::ENDED);
            assert_eq!(ProcessEnd::decode(&mut MessageReader(&bytes[9..])).unwrap(), end);
        }
        let usage =
            SandboxUsage { cpu: Duration::from_micros(5), processes: 2, ..SandboxUsage::default() };
        let bytes = usage.encode(MessageWriter::new(0)).finish();
        assert_eq!(SandboxUsage::decode(&mut MessageReader(&bytes[1..])).unwrap(), usage);
    }

    /// Every prefix of a frame is an error, and none panics or reserves much.
    #[test]
    fn a_cut_frame_is_malformed() {
        let bytes = start().encode(7);
        for n in 9..bytes.len() {
            assert!(StartProgram::decode(&mut MessageReader(&bytes[9..n])).is_err(), "cut at {n}");
        }
        let bytes = SessionSandboxLimits::default().encode(7);
        for n in 9..bytes.len() {
            assert!(
                SessionSandboxLimits::read(&mut MessageReader(&bytes[9..n])).is_err(),
                "cut at {n}"
            );
        }
        // An end without its optional failure is complete.
        let complete = ProcessEnd::default().encode(7).len();
        let bytes = end().encode(7);
        for n in (9..bytes.len()).filter(|n| *n != complete) {
            assert!(ProcessEnd::decode(&mut MessageReader(&bytes[9..n])).is_err(), "cut at {n}");
        }
    }
}
