//! Connects the descriptors of programs to the engine, to each other, to files and to the caller.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use sandbox::{ChunkStream as Standard, OutputMode, OutputSink, SharedFile, StdinSource};
use tokio::sync::mpsc;
use tokio::sync::mpsc::OwnedPermit;
use tokio::sync::mpsc::error::SendError;
use tokio::task::JoinSet;

use super::pipes::{self, CaptureBudget, CapturedBytes};
use super::plan::{DescriptorPipe, DescriptorPlan, GojudgePlan, GojudgeProgram, is_collected_as};
use super::run::CallerHandle;
use super::stream::{self, OutputChunk};

/// Content of a stream other than the captured ones.
#[derive(Debug)]
pub(super) struct CollectedStream {
    /// Index of the program that wrote it.
    pub(super) program: usize,
    pub(super) name: String,
    pub(super) kept: CapturedBytes,
    /// True if output beyond the kept bytes exceeds a limit.
    pub(super) is_limited: bool,
}

/// Target of a captured stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CaptureTarget {
    /// Discarded.
    Nothing,
    /// A file of the answer.
    Keep { name: String, bytes_max: u64 },
    /// Sent to the caller.
    Send(u8),
}

/// A program whose streams are connected.
pub(super) struct ConnectedProgram {
    /// Targets of standard output and standard error.
    pub(super) captures: [CaptureTarget; 2],
    pub(super) sink: CaptureSink,
    /// Stored files of its descriptors: they count while it runs.
    _files: Vec<Arc<SharedFile>>,
}

/// Streams and pipes to connect.
pub(super) struct ProgramWires {
    /// Ends of pipes, by program and descriptor.
    ends: HashMap<(usize, usize), OwnedFd>,
    inputs: HashMap<u8, mpsc::Receiver<Vec<u8>>>,
    output: Option<mpsc::Sender<OutputChunk>>,
    /// Stored files of the program that is being connected.
    files: Vec<Arc<SharedFile>>,
    /// Budget of each program for streams other than the captured ones.
    budgets: Vec<Arc<CaptureBudget>>,
    stream_bytes_max: u64,
}

impl ProgramWires {
    /// Creates the pipes between programs and starts the relays.
    pub(super) fn lay(
        plan: &GojudgePlan,
        remote: &mut CallerHandle,
        stream_bytes_max: u64,
        tasks: &mut JoinSet<Option<CollectedStream>>,
    ) -> io::Result<ProgramWires> {
        let budget = |program: &GojudgeProgram| CaptureBudget::new(program.stream_bytes_max);
        let budgets: Vec<Arc<CaptureBudget>> = plan.programs.iter().map(budget).collect();
        let mut ends = HashMap::new();
        for pipe in &plan.pipes {
            let (read, write) = io::pipe()?;
            ends.insert(pipe.source, write.into());
            if !pipe.is_relayed {
                ends.insert(pipe.target, read.into());
                continue;
            }
            let (far_read, far_write) = io::pipe()?;
            ends.insert(pipe.target, far_read.into());
            let budget =
                budgets.get(pipe.source.0).map_or_else(|| CaptureBudget::new(0), Arc::clone);
            let keep_max = pipe.keep.as_ref().map(|(_, bytes_max)| *bytes_max);
            let relay = pipes::relay(read, far_write, keep_max, budget)?;
            let DescriptorPipe { source: (program, _), keep, .. } = pipe;
            let (program, name) = (*program, keep.as_ref().map(|(name, _)| name.clone()));
            tasks.spawn(async move {
                // The sender is only dropped without a result when the process ends.
                let kept = relay.await.ok()?;
                name.map(|name| CollectedStream { program, name, kept, is_limited: false })
            });
        }
        let inputs = std::mem::take(&mut remote.inputs);
        let (output, files) = (remote.output.take(), Vec::new());
        Ok(ProgramWires { ends, inputs, output, files, budgets, stream_bytes_max })
    }

    /// Connects the streams of the program at `index`.
    pub(super) fn connect(
        &mut self,
        index: usize,
        program: &mut GojudgeProgram,
        tasks: &mut JoinSet<Option<CollectedStream>>,
    ) -> io::Result<ConnectedProgram> {
        let streams = std::mem::take(&mut program.streams);
        let captures = match program.has_terminal {
            true => self.connect_terminal(index, program, streams)?,
            false => self.connect_each(index, program, streams, tasks)?,
        };
        let limits = &mut program.command.limits;
        let wanted = captures.iter().map(|capture| match capture {
            CaptureTarget::Nothing => (0, 0),
            // One byte more than requested shows that there was more.
            CaptureTarget::Keep { bytes_max, .. } => (*bytes_max, bytes_max.saturating_add(1)),
            CaptureTarget::Send(_) => (self.stream_bytes_max, 0),
        });
        let (output, kept) = wanted.fold((1, 0), |(a, b), (c, d)| (a.max(c), b.max(d)));
        limits.output_bytes = output;
        program.command.kept_bytes = Some(kept);
        let tags = captures.each_ref().map(|capture| match capture {
            CaptureTarget::Send(tag) => Some(*tag),
            CaptureTarget::Nothing | CaptureTarget::Keep { .. } => None,
        });
        let sink = CaptureSink::new(tags, self.output.clone());
        Ok(ConnectedProgram { captures, sink, _files: std::mem::take(&mut self.files) })
    }

    /// Connects a terminal, which is all three streams; its output goes to the first stream that
    /// requests output.
    fn connect_terminal(
        &mut self,
        index: usize,
        program: &mut GojudgeProgram,
        streams: Vec<DescriptorPlan>,
    ) -> io::Result<[CaptureTarget; 2]> {
        let mut output = CaptureTarget::Nothing;
        for (fd, stream) in streams.into_iter().enumerate() {
            let is_first = output == CaptureTarget::Nothing;
            match stream {
                DescriptorPlan::Collect { name, bytes_max } if is_first => {
                    output = CaptureTarget::Keep { name, bytes_max };
                }
                DescriptorPlan::Out if is_first => {
                    output = CaptureTarget::Send(stream::tag(index, fd))
                }
                DescriptorPlan::In => {
                    program.command.stdin = self.live(stream::tag(index, fd));
                }
                DescriptorPlan::Bytes(bytes) if fd == 0 => {
                    program.command.stdin = StdinSource::Bytes(bytes)
                }
                DescriptorPlan::Shared(file) if fd == 0 => {
                    program.command.stdin = StdinSource::Bytes(file.read()?)
                }
                DescriptorPlan::Collect { .. }
                | DescriptorPlan::Out
                | DescriptorPlan::Bytes(_)
                | DescriptorPlan::Shared(_)
                | DescriptorPlan::Null
                | DescriptorPlan::Absent
                | DescriptorPlan::Piped => {}
            }
        }
        Ok([output, CaptureTarget::Nothing])
    }

    fn connect_each(
        &mut self,
        index: usize,
        program: &mut GojudgeProgram,
        streams: Vec<DescriptorPlan>,
        tasks: &mut JoinSet<Option<CollectedStream>>,
    ) -> io::Result<[CaptureTarget; 2]> {
        let mut captures = [CaptureTarget::Nothing, CaptureTarget::Nothing];
        let is_merged = matches!((streams.get(1), streams.get(2)),
            (Some(out), Some(DescriptorPlan::Collect { name, .. })) if is_collected_as(out, name));
        let mut streams = streams.into_iter();
        let mut standard = || streams.next().unwrap_or(DescriptorPlan::Absent);
        let (stdin, stdout, stderr) = (standard(), standard(), standard());
        let command = &mut program.command;
        command.stdin = match stdin {
            DescriptorPlan::Absent | DescriptorPlan::Null => StdinSource::Empty,
            DescriptorPlan::In => self.live(stream::tag(index, 0)),
            other => StdinSource::Handle(self.handle(index, 0, other, tasks)?),
        };
        let outputs = [(1, stdout, &mut command.stdout), (2, stderr, &mut command.stderr)];
        for ((fd, stream, output), capture) in outputs.into_iter().zip(&mut captures) {
            *output = match stream {
                DescriptorPlan::Collect { .. } if fd == 2 && is_merged => OutputMode::Stdout,
                DescriptorPlan::Collect { name, bytes_max } => {
                    *capture = CaptureTarget::Keep { name, bytes_max };
                    OutputMode::Capture
                }
                DescriptorPlan::Out => {
                    *capture = CaptureTarget::Send(stream::tag(index, fd));
                    OutputMode::Capture
                }
                other => OutputMode::Handle(self.handle(index, fd, other, tasks)?),
            };
        }
        for (fd, stream) in (3..).zip(streams) {
            if !matches!(stream, DescriptorPlan::Absent) {
                let number = u32::try_from(fd).unwrap_or(u32::MAX);
                command.extra.push((number, self.handle(index, fd, stream, tasks)?));
            }
        }
        Ok(captures)
    }

    fn live(&mut self, tag: u8) -> StdinSource {
        self.inputs.remove(&tag).map_or(StdinSource::Empty, StdinSource::Live)
    }

    /// Opens a descriptor for a stream, and starts the task at its other end.
    fn handle(
        &mut self,
        index: usize,
        fd: usize,
        stream: DescriptorPlan,
        tasks: &mut JoinSet<Option<CollectedStream>>,
    ) -> io::Result<OwnedFd> {
        match stream {
            DescriptorPlan::Absent | DescriptorPlan::Null => pipes::null(),
            DescriptorPlan::Bytes(bytes) => pipes::open_shared(&SharedFile::from_bytes(&bytes)?),
            DescriptorPlan::Shared(file) => {
                let file = pipes::sealed(file)?;
                let handle = pipes::open_shared(&file)?;
                self.files.push(file);
                Ok(handle)
            }
            DescriptorPlan::Collect { name, bytes_max } => {
                let (read, write) = io::pipe()?;
                let budget =
                    self.budgets.get(index).map_or_else(|| CaptureBudget::new(0), Arc::clone);
                let collect = pipes::collect(pipes::reader(read)?, bytes_max, budget);
                tasks.spawn(async move {
                    let kept = collect.await;
                    Some(CollectedStream { program: index, name, kept, is_limited: true })
                });
                Ok(write.into())
            }
            DescriptorPlan::In => {
                let (read, write) = io::pipe()?;
                let write = pipes::writer(write)?;
                if let Some(input) = self.inputs.remove(&stream::tag(index, fd)) {
                    // Ends when its reader closes the pipe; the remaining input is then useless.
                    node::task::spawn(pipes::feed(input, write));
                }
                Ok(read.into())
            }
            DescriptorPlan::Out => {
                let (read, write) = io::pipe()?;
                if let Some(output) = self.output.clone() {
                    let forward =
                        pipes::forward(pipes::reader(read)?, stream::tag(index, fd), output);
                    tasks.spawn(async move {
                        forward.await;
                        None
                    });
                }
                Ok(write.into())
            }
            // Created before; each end exists once.
            DescriptorPlan::Piped => match self.ends.remove(&(index, fd)) {
                Some(end) => Ok(end),
                None => Err(io::ErrorKind::NotFound.into()),
            },
        }
    }
}

type Reserving =
    Pin<Box<dyn Future<Output = Result<OwnedPermit<OutputChunk>, SendError<()>>> + Send>>;

/// Sends the captured output that the caller requested. While the caller accepts none, the program
/// blocks.
pub(super) struct CaptureSink {
    tags: [Option<u8>; 2],
    /// `None` if there is no receiver, or no longer.
    output: Option<mpsc::Sender<OutputChunk>>,
    /// The pending reservation of room.
    reserving: Option<Reserving>,
    /// Room for one chunk.
    permit: Option<OwnedPermit<OutputChunk>>,
    /// Chunks that arrived without room: at most one of each stream whenever there was room.
    waiting: VecDeque<OutputChunk>,
}

impl CaptureSink {
    fn new(tags: [Option<u8>; 2], output: Option<mpsc::Sender<OutputChunk>>) -> CaptureSink {
        let output = output.filter(|_| tags.iter().any(Option::is_some));
        CaptureSink { tags, output, reserving: None, permit: None, waiting: VecDeque::new() }
    }

    /// Sends the waiting chunks.
    pub(super) async fn flush(&mut self) {
        self.permit = None;
        self.reserving = None;
        let Some(output) = self.output.take() else { return };
        for chunk in self.waiting.drain(..) {
            if output.send(chunk).await.is_err() {
                return;
            }
        }
    }

    fn poll_permit(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.permit.is_none() {
            let Some(output) = &self.output else { return Poll::Ready(()) };
            let output = output.clone();
            let reserving = self.reserving.get_or_insert_with(|| Box::pin(output.reserve_owned()));
            let reserved = ready!(reserving.as_mut().poll(context));
            self.reserving = None;
            match reserved {
                Ok(permit) => match self.waiting.pop_front() {
                    Some(chunk) => drop(permit.send(chunk)),
                    None => self.permit = Some(permit),
                },
                // The receiver is gone; the end of the connection will end the program.
                Err(_) => self.output = None,
            }
        }
        Poll::Ready(())
    }
}

impl OutputSink for CaptureSink {
    fn chunk(&mut self, stream: Standard, bytes: &[u8]) {
        let tag = match stream {
            Standard::Stdout => self.tags[0],
            Standard::Stderr => self.tags[1],
        };
        let Some(tag) = tag.filter(|_| self.output.is_some()) else { return };
        let chunk = OutputChunk { tag, bytes: bytes.to_vec() };
        match self.permit.take() {
            Some(permit) if self.waiting.is_empty() => drop(permit.send(chunk)),
            _ => self.waiting.push_back(chunk),
        }
    }

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.poll_permit(context)
    }
}
