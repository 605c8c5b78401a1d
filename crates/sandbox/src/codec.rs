//! Encoding of messages between server, spawner and guest init.
//!
//! All three are the same binary, so versions are not negotiated and all peers are trusted: the
//! format is fixed fields in order, lengths first. Decoding checks lengths all the same, because a
//! wrong one must cause an error and not a wrong sandbox.

use std::time::Duration;

use crate::spec::{ProgramLimits, SeccompProfile, TerminalDimensions};

pub(crate) mod session;

/// Largest message to a guest init; larger ones are sent in a sealed anonymous file. Small, because
/// two processes have a buffer for it in every sandbox, and each page that they touch costs a
/// fault.
pub(crate) const MESSAGE_BYTES_MAX: usize = 8 << 10;

/// A message does not have the required form.
#[derive(Debug, thiserror::Error)]
#[error("malformed message between cove processes")]
pub(crate) struct MalformedMessage;

/// Builds a message.
#[derive(Debug, Default)]
pub(crate) struct MessageWriter(Vec<u8>);

impl MessageWriter {
    pub(crate) fn new(kind: u8) -> Self {
        MessageWriter(vec![kind])
    }
    pub(crate) fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }
    pub(crate) fn u16(mut self, value: u16) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }
    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }
    pub(crate) fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }
    pub(crate) fn duration(self, value: Duration) -> Self {
        self.u64(u64::try_from(value.as_nanos()).unwrap_or(u64::MAX))
    }
    pub(crate) fn limits(self, l: &ProgramLimits) -> Self {
        let w = self.duration(l.cpu).duration(l.wall).u64(l.memory_bytes).u64(l.processes);
        let w = w.u64(l.output_bytes).u64(l.open_files).u64(l.file_size_bytes).u64(l.disk_bytes);
        w.u64(l.disk_inodes).u64(l.stack_bytes)
    }
    pub(crate) fn bytes(mut self, value: &[u8]) -> Self {
        self = self.u64(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }
    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Reads the fields of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageReader<'a>(pub(crate) &'a [u8]);

impl<'a> MessageReader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], MalformedMessage> {
        let (head, rest) = self.0.split_at_checked(n).ok_or(MalformedMessage)?;
        self.0 = rest;
        Ok(head)
    }
    pub(crate) fn u8(&mut self) -> Result<u8, MalformedMessage> {
        self.take(1)?.first().copied().ok_or(MalformedMessage)
    }
    pub(crate) fn u16(&mut self) -> Result<u16, MalformedMessage> {
        Ok(u16::from_le_bytes(self.take(2)?.try_into().map_err(|_| MalformedMessage)?))
    }
    pub(crate) fn u32(&mut self) -> Result<u32, MalformedMessage> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().map_err(|_| MalformedMessage)?))
    }
    pub(crate) fn i32(&mut self) -> Result<i32, MalformedMessage> {
        Ok(self.u32()?.cast_signed())
    }
    pub(crate) fn u64(&mut self) -> Result<u64, MalformedMessage> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().map_err(|_| MalformedMessage)?))
    }
    pub(crate) fn duration(&mut self) -> Result<Duration, MalformedMessage> {
        Ok(Duration::from_nanos(self.u64()?))
    }
    pub(crate) fn limits(&mut self) -> Result<ProgramLimits, MalformedMessage> {
        Ok(ProgramLimits {
            cpu: self.duration()?,
            wall: self.duration()?,
            memory_bytes: self.u64()?,
            processes: self.u64()?,
            output_bytes: self.u64()?,
            open_files: self.u64()?,
            file_size_bytes: self.u64()?,
            disk_bytes: self.u64()?,
            disk_inodes: self.u64()?,
            stack_bytes: self.u64()?,
        })
    }
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], MalformedMessage> {
        let n = usize::try_from(self.u64()?).map_err(|_| MalformedMessage)?;
        self.take(n)
    }
    pub(crate) fn string(&mut self) -> Result<String, MalformedMessage> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| MalformedMessage)
    }
    /// Returns whether all bytes are read.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Reads a count that cannot exceed the remaining bytes, so that a wrong one cannot reserve
    /// memory.
    pub(crate) fn count(&mut self) -> Result<usize, MalformedMessage> {
        let n = usize::try_from(self.u32()?).map_err(|_| MalformedMessage)?;
        if n > self.0.len() { Err(MalformedMessage) } else { Ok(n) }
    }
}

/// First byte of a message from the server to a spawner.
pub(crate) mod to_spawner {
    pub(crate) const SETUP: u8 = 1;
    pub(crate) const PREPARE: u8 = 2;
    pub(crate) const KILL: u8 = 3;
}

/// First byte of a message from a spawner to the server.
pub(crate) mod from_spawner {
    pub(crate) const HELLO: u8 = 1;
    pub(crate) const FAILED: u8 = 2;
    pub(crate) const PREPARED: u8 = 3;
    pub(crate) const NOT_PREPARED: u8 = 4;
    pub(crate) const GONE: u8 = 5;
}

/// First byte of a message from the server to a guest init.
pub(crate) mod to_guest {
    /// Start a command, with the whole message.
    pub(crate) const START: u8 = 1;
    /// Start a command; the message is in the last descriptor.
    pub(crate) const START_IN_FILE: u8 = 2;
    /// End the running command.
    pub(crate) const STOP: u8 = 3;
    /// Send the signal of the second byte to the running command.
    pub(crate) const SIGNAL: u8 = 4;
    /// Mount layers below the workspace, before the first command: the path of the working
    /// directory, and the layers as descriptors, the newest first.
    pub(crate) const LAYERS: u8 = 5;
}

/// First byte of a message from a guest init to the server.
pub(crate) mod from_guest {
    /// The guest init is set up.
    pub(crate) const READY: u8 = 1;
    /// A step failed; the sandbox is unusable.
    pub(crate) const FAILED: u8 = 2;
    /// A command has ended.
    pub(crate) const EXIT: u8 = 3;
    /// A file of the command could not be placed.
    pub(crate) const FILE: u8 = 4;
    /// The server's side of the command's terminal, as a descriptor; before the command starts.
    pub(crate) const TERMINAL: u8 = 5;
    /// Sockets that listen on the command's ports, as descriptors; before all other messages.
    pub(crate) const LISTENING: u8 = 6;
    /// The layers are mounted.
    pub(crate) const MOUNTED: u8 = 7;
}

/// Setup of a command's standard streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamSetup {
    /// Descriptors: output, then errors unless they are `merged` with it, then input if there is
    /// one.
    Given { merged: bool, has_stdin: bool },
    /// A terminal, which the guest init creates.
    Terminal(TerminalDimensions),
    /// Streams that the waiting runtime has already.
    Waiting,
}

impl StreamSetup {
    /// Returns the number of stream descriptors in the message.
    pub(crate) fn descriptor_count(self) -> usize {
        match self {
            StreamSetup::Given { merged, has_stdin } => {
                1 + usize::from(!merged) + usize::from(has_stdin)
            }
            StreamSetup::Terminal(_) | StreamSetup::Waiting => 0,
        }
    }

    fn encode(self, w: MessageWriter) -> MessageWriter {
        match self {
            StreamSetup::Given { merged, has_stdin } => {
                w.u8(0).u8(merged.into()).u8(has_stdin.into())
            }
            StreamSetup::Terminal(TerminalDimensions { rows, cols }) => w.u8(1).u16(rows).u16(cols),
            StreamSetup::Waiting => w.u8(2),
        }
    }

    fn decode(r: &mut MessageReader<'_>) -> Result<StreamSetup, MalformedMessage> {
        match r.u8()? {
            0 => Ok(StreamSetup::Given { merged: r.u8()? != 0, has_stdin: r.u8()? != 0 }),
            1 => Ok(StreamSetup::Terminal(TerminalDimensions { rows: r.u16()?, cols: r.u16()? })),
            2 => Ok(StreamSetup::Waiting),
            _ => Err(MalformedMessage),
        }
    }
}

/// A file to place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacedFile<'a> {
    pub(crate) path: &'a [u8],
    pub(crate) executable: bool,
    pub(crate) content: StoredContent<'a>,
}

/// Location of a file's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoredContent<'a> {
    /// Inline bytes.
    Bytes(&'a [u8]),
    /// The first `len` bytes of one of the shared descriptors.
    Shared { index: usize, len: u64 },
}

/// Command for the guest init. Borrowed from the received message.
///
/// Its descriptors, in this order: those of `streams`, those of `extra`, those of shared content,
/// and the message itself if it is in a file.
#[derive(Debug)]
pub(crate) struct StartMessage<'a> {
    pub(crate) streams: StreamSetup,
    /// Numbers of further descriptors.
    pub(crate) extra: Vec<u32>,
    /// Ports of the sandbox's own loopback at which the server listens.
    pub(crate) ports: Vec<u16>,
    pub(crate) last: bool,
    /// True if it is for the runtime that waits in the sandbox.
    pub(crate) warm: bool,
    pub(crate) profile: SeccompProfile,
    pub(crate) limits: ProgramLimits,
    pub(crate) argv: Vec<&'a [u8]>,
    pub(crate) env: Vec<&'a [u8]>,
    pub(crate) outputs: Vec<&'a [u8]>,
    pub(crate) files: Vec<PlacedFile<'a>>,
    /// Path and target.
    pub(crate) symlinks: Vec<(&'a [u8], &'a [u8])>,
}

impl<'a> StartMessage<'a> {
    /// Encodes everything after the kind byte.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = self
            .streams
            .encode(MessageWriter::new(to_guest::START))
            .u8(self.last.into())
            .u8(self.warm.into())
            .u8(matches!(self.profile, SeccompProfile::Compile).into())
            .limits(&self.limits);
        for list in [&self.argv, &self.env, &self.outputs] {
            w = w.u32(u32::try_from(list.len()).unwrap_or(u32::MAX));
            for item in list {
                w = w.bytes(item);
            }
        }
        w = w.u32(u32::try_from(self.extra.len()).unwrap_or(u32::MAX));
        for number in &self.extra {
            w = w.u32(*number);
        }
        w = w.u32(u32::try_from(self.ports.len()).unwrap_or(u32::MAX));
        for port in &self.ports {
            w = w.u16(*port);
        }
        w = w.u32(u32::try_from(self.files.len()).unwrap_or(u32::MAX));
        for PlacedFile { path, executable, content } in &self.files {
            w = w.bytes(path).u8((*executable).into());
            w = match content {
                StoredContent::Bytes(bytes) => w.u8(0).bytes(bytes),
                StoredContent::Shared { index, len } => w.u8(1).u64(*index as u64).u64(*len),
            };
        }
        w = w.u32(u32::try_from(self.symlinks.len()).unwrap_or(u32::MAX));
        for (path, target) in &self.symlinks {
            w = w.bytes(path).bytes(target);
        }
        w.finish()
    }

    /// Decodes a message of [`StartMessage::encode`], from after the kind byte.
    pub(crate) fn decode(r: &mut MessageReader<'a>) -> Result<Self, MalformedMessage> {
        let streams = StreamSetup::decode(r)?;
        let last = r.u8()? != 0;
        let warm = r.u8()? != 0;
        let profile = if r.u8()? != 0 { SeccompProfile::Compile } else { SeccompProfile::Run };
        let limits = r.limits()?;
        let mut list = || -> Result<Vec<&'a [u8]>, MalformedMessage> {
            (0..r.count()?).map(|_| r.bytes()).collect()
        };
        let (argv, env, outputs) = (list()?, list()?, list()?);
        let extra = (0..r.count()?).map(|_| r.u32()).collect::<Result<_, _>>()?;
        let ports = (0..r.count()?).map(|_| r.u16()).collect::<Result<_, _>>()?;
        let mut files = Vec::new();
        for _ in 0..r.count()? {
            let (path, executable) = (r.bytes()?, r.u8()? != 0);
            let content = match r.u8()? {
                0 => StoredContent::Bytes(r.bytes()?),
                1 => StoredContent::Shared {
                    index: usize::try_from(r.u64()?).map_err(|_| MalformedMessage)?,
                    len: r.u64()?,
                },
                _ => return Err(MalformedMessage),
            };
            files.push(PlacedFile { path, executable, content });
        }
        let symlinks =
            (0..r.count()?).map(|_| Ok((r.bytes()?, r.bytes()?))).collect::<Result<_, _>>()?;
        Ok(StartMessage {
            streams,
            extra,
            ports,
            last,
            warm,
            profile,
            limits,
            argv,
            env,
            outputs,
            files,
            symlinks,
        })
    }
}

/// End of a command as measured by the guest init.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndReport {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) exec_errno: Option<i32>,
    pub(crate) cpu_breached: bool,
    pub(crate) wall_breached: bool,
    /// True if the server's message ended it.
    pub(crate) stopped: bool,
    pub(crate) cpu: Duration,
    pub(crate) wall: Duration,
    pub(crate) ended: Duration,
    pub(crate) memory_peak_bytes: u64,
    pub(crate) memory_limit_reached: bool,
    pub(crate) processes_peak: u64,
    pub(crate) oom_kills: u64,
    /// For each requested output: 0 if its descriptor follows in order, or an errno.
    pub(crate) outputs: Vec<i32>,
}

impl EndReport {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let some = |w: MessageWriter, v: Option<i32>| match v {
            Some(v) => w.u8(1).u32(v.cast_unsigned()),
            None => w.u8(0).u32(0),
        };
        let mut w = MessageWriter::new(from_guest::EXIT);
        for value in [self.code, self.signal, self.exec_errno] {
            w = some(w, value);
        }
        w = w
            .u8(self.cpu_breached.into())
            .u8(self.wall_breached.into())
            .u8(self.stopped.into())
            .u8(self.memory_limit_reached.into())
            .duration(self.cpu)
            .duration(self.wall)
            .duration(self.ended)
            .u64(self.memory_peak_bytes)
            .u64(self.processes_peak)
            .u64(self.oom_kills)
            .u32(u32::try_from(self.outputs.len()).unwrap_or(u32::MAX));
        for errno in &self.outputs {
            w = w.u32(errno.cast_unsigned());
        }
        w.finish()
    }

    /// Decodes a message of [`EndReport::encode`], from after the kind byte.
    pub(crate) fn decode(r: &mut MessageReader<'_>) -> Result<Self, MalformedMessage> {
        let mut some = || -> Result<Option<i32>, MalformedMessage> {
            let present = r.u8()? != 0;
            let value = r.i32()?;
            Ok(present.then_some(value))
        };
        let (code, signal, exec_errno) = (some()?, some()?, some()?);
        let cpu_breached = r.u8()? != 0;
        let wall_breached = r.u8()? != 0;
        let stopped = r.u8()? != 0;
        let memory_limit_reached = r.u8()? != 0;
        let (cpu, wall, ended) = (r.duration()?, r.duration()?, r.duration()?);
        let (memory_peak_bytes, processes_peak, oom_kills) = (r.u64()?, r.u64()?, r.u64()?);
        let outputs = (0..r.count()?).map(|_| r.i32()).collect::<Result<_, _>>()?;
        Ok(EndReport {
            code,
            signal,
            exec_errno,
            cpu_breached,
            wall_breached,
            stopped,
            cpu,
            wall,
            ended,
            memory_peak_bytes,
            memory_limit_reached,
            processes_peak,
            oom_kills,
            outputs,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file<'a>(path: &'a [u8], content: StoredContent<'a>) -> PlacedFile<'a> {
        PlacedFile { path, executable: false, content }
    }

    #[test]
    fn a_start_survives_the_wire() {
        let start = StartMessage {
            streams: StreamSetup::Terminal(TerminalDimensions { rows: 24, cols: 80 }),
            extra: vec![3, 5],
            ports: vec![5432, 65535],
            last: true,
            warm: true,
            profile: SeccompProfile::Compile,
            limits: ProgramLimits { processes: 7, ..ProgramLimits::default() },
            argv: vec![b"/bin/sh", b"-c", b"\xff"],
            env: vec![b"A=1"],
            outputs: vec![b"out/a"],
            files: vec![
                file(b"main.c", StoredContent::Bytes(b"int main(){}")),
                PlacedFile {
                    executable: true,
                    ..file(b"x", StoredContent::Shared { index: 1, len: 9 })
                },
            ],
            symlinks: vec![(b"here", b"/there")],
        };
        let bytes = start.encode();
        let again = StartMessage::decode(&mut MessageReader(&bytes[1..])).unwrap();
        assert_eq!(again.encode(), bytes);
        assert_eq!(again.limits, start.limits);
        assert_eq!((again.streams, again.extra), (start.streams, start.extra));
        assert_eq!(again.ports, start.ports);
        assert_eq!((again.files, again.symlinks), (start.files, start.symlinks));
    }

    #[test]
    fn a_report_survives_the_wire() {
        let report = EndReport {
            signal: Some(9),
            wall_breached: true,
            stopped: true,
            cpu: Duration::from_micros(1234),
            outputs: vec![0, libc::ELOOP],
            ..EndReport::default()
        };
        let bytes = report.encode();
        assert_eq!(EndReport::decode(&mut MessageReader(&bytes[1..])).unwrap(), report);
    }

    /// Every prefix of a message is an error, and none panics or reserves much.
    #[test]
    fn a_cut_message_is_malformed() {
        let start = StartMessage {
            streams: StreamSetup::Given { merged: true, has_stdin: false },
            extra: vec![3],
            ports: vec![5432],
            last: false,
            warm: false,
            profile: SeccompProfile::Run,
            limits: ProgramLimits::default(),
            argv: vec![b"a"],
            env: vec![],
            outputs: vec![b"b"],
            files: vec![file(b"c", StoredContent::Bytes(b"d"))],
            symlinks: vec![(b"e", b"f")],
        };
        let bytes = start.encode();
        for n in 1..bytes.len() {
            assert!(StartMessage::decode(&mut MessageReader(&bytes[1..n])).is_err(), "cut at {n}");
        }
        let report = EndReport { outputs: vec![1], ..EndReport::default() }.encode();
        for n in 1..report.len() {
            assert!(EndReport::decode(&mut MessageReader(&report[1..n])).is_err(), "cut at {n}");
        }
    }
}
