//! Warm runtimes: interpreters that have started before their program arrives.
//!
//! Two kinds. *Fork*: each spawner keeps one interpreter, the *zygote*, that has done everything up
//! to opening its program; when a sandbox is prepared, it requests a copy of the zygote, which
//! enters the sandbox and is parked there like any process ([`Zygotes`], `guest/warm.rs`,
//! `warm/usercustomize.py`). *Start*: a sandbox that is prepared starts an interpreter of its own,
//! which waits in the same way.
//!
//! A waiting interpreter is used once, by the first command of its sandbox, and is exactly as
//! restricted as any program. A zygote never reads data from a caller.

mod zygote;

pub(crate) use zygote::{ZygoteContext, Zygotes, capabilities};

use std::path::PathBuf;

use crate::codec::{MalformedMessage, MessageReader, MessageWriter};
use crate::payload;
use crate::spec::{WarmKind, WarmRuntime};

/// Directory of start hooks, inside sandboxes and in the spawner's root, with a subdirectory for
/// each runtime.
const HOOKS: &str = "/opt/.cove";
/// Message that releases a parked runtime; the content follows, or is in the last descriptor.
pub(crate) const RELEASE: u8 = 1;
pub(crate) const RELEASE_IN_FILE: u8 = 2;
/// First byte of a waiting runtime.
pub(crate) const PARKED: u8 = 0;
pub(crate) const NOT_PARKED: u8 = 1;

impl WarmKind {
    /// Returns the file name and the content of its start hook.
    fn hook(self) -> (&'static str, &'static [u8]) {
        match self {
            WarmKind::ForkPython => ("usercustomize.py", include_bytes!("warm/usercustomize.py")),
            WarmKind::StartNode => ("start.cjs", include_bytes!("warm/start.cjs")),
            WarmKind::StartJava => {
                ("start.so", include_bytes!(concat!(env!("OUT_DIR"), "/start.so")))
            }
        }
    }

    fn number(self) -> u8 {
        match self {
            WarmKind::ForkPython => 0,
            WarmKind::StartNode => 1,
            WarmKind::StartJava => 2,
        }
    }

    fn from_number(number: u8) -> Option<WarmKind> {
        match number {
            0 => Some(WarmKind::ForkPython),
            1 => Some(WarmKind::StartNode),
            2 => Some(WarmKind::StartJava),
            _ => None,
        }
    }
}

impl WarmRuntime {
    /// Returns a command's arguments after the runtime's own; `None` if the command is not for this
    /// runtime.
    pub(crate) fn arguments<'a>(&self, argv: &[&'a [u8]], env: &[&[u8]]) -> Option<Vec<&'a [u8]>> {
        let (own, rest) = argv.split_at_checked(self.argv.len())?;
        let serves = match self.kind {
            WarmKind::ForkPython | WarmKind::StartNode => true,
            WarmKind::StartJava => rest.is_empty() && env == self.env,
        };
        (own == self.argv && serves).then(|| rest.to_vec())
    }

    /// Returns the arguments and the environment of its start, which make it run its hook.
    pub(crate) fn start(&self, index: usize) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let (mut argv, mut env) = (self.argv.clone(), self.env.clone());
        match self.kind {
            WarmKind::ForkPython => {
                env.push(format!("PYTHONPATH={}", hook_dir(index)).into_bytes());
            }
            WarmKind::StartNode => {
                let hook = format!("{}/{}", hook_dir(index), self.kind.hook().0).into_bytes();
                // Before the file of the program, which is the last argument.
                let at = argv.len().saturating_sub(1);
                argv.splice(at..at, [b"--require".to_vec(), hook]);
            }
            WarmKind::StartJava => {
                let hook = format!("-agentpath:{}/{}", hook_dir(index), self.kind.hook().0);
                argv.insert(argv.len().min(1), hook.into_bytes());
            }
        }
        (argv, env)
    }

    /// Returns whether each spawner keeps a zygote of it.
    pub(crate) fn is_forked(&self) -> bool {
        match self.kind {
            WarmKind::ForkPython => true,
            WarmKind::StartNode | WarmKind::StartJava => false,
        }
    }

    pub(crate) fn encode(&self, w: MessageWriter) -> MessageWriter {
        let mut w = w.bytes(self.name.as_bytes()).u8(self.kind.number());
        for list in [&self.argv, &self.env] {
            w = w.u32(u32::try_from(list.len()).unwrap_or(u32::MAX));
            for item in list {
                w = w.bytes(item);
            }
        }
        let count = u64::try_from(self.ready).unwrap_or(u64::MAX);
        w.limits(&self.limits).u64(count).u32(self.forks_max)
    }

    pub(crate) fn decode(r: &mut MessageReader<'_>) -> Result<WarmRuntime, MalformedMessage> {
        let name = r.string()?;
        let kind = WarmKind::from_number(r.u8()?).ok_or(MalformedMessage)?;
        let mut list = || -> Result<Vec<Vec<u8>>, MalformedMessage> {
            (0..r.count()?).map(|_| Ok(r.bytes()?.to_vec())).collect()
        };
        let (argv, env) = (list()?, list()?);
        let limits = r.limits()?;
        let ready = usize::try_from(r.u64()?).map_err(|_| MalformedMessage)?;
        Ok(WarmRuntime { name, kind, argv, env, limits, ready, forks_max: r.u32()? })
    }
}

fn hook_dir(index: usize) -> String {
    format!("{HOOKS}/{index}")
}

/// Returns the path below the root, and the content, of every start hook.
pub(crate) fn hooks(runtimes: &[WarmRuntime]) -> Vec<(PathBuf, &'static [u8])> {
    let hook = |(index, runtime): (usize, &WarmRuntime)| {
        let (name, content) = runtime.kind.hook();
        (PathBuf::from(hook_dir(index)).join(name), content)
    };
    runtimes.iter().enumerate().map(hook).collect()
}

/// Maximum stack of a zygote's copies: the stack limit at `execve` determines where the kernel
/// places all other mappings.
pub const STACK_BYTES_MAX: u64 = 1 << 30;

/// Command for a parked runtime.
pub(crate) struct RuntimeRelease<'a> {
    pub(crate) has_stdin: bool,
    /// True if standard error goes to standard output.
    pub(crate) merged: bool,
    /// Resource limits to set.
    pub(crate) limits: &'a [(libc::__rlimit_resource_t, u64)],
    pub(crate) stack_bytes: u64,
    /// Arguments after the runtime's own.
    pub(crate) arguments: &'a [&'a [u8]],
    pub(crate) env: &'a [&'a [u8]],
}

impl RuntimeRelease<'_> {
    /// Encodes the message, little-endian: kind, flags, stack, then counted lists of limits
    /// (resource, value), arguments and variables (length, bytes).
    pub(crate) fn encode(&self) -> Vec<u8> {
        let flags = u8::from(self.has_stdin) | u8::from(self.merged) << 1;
        let mut message = MessageWriter::new(RELEASE).u8(flags).u64(self.stack_bytes).finish();
        let number = |message: &mut Vec<u8>, n: usize| {
            message.extend_from_slice(&u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes());
        };
        number(&mut message, self.limits.len());
        for (resource, value) in self.limits {
            message.extend_from_slice(&resource.to_le_bytes());
            message.extend_from_slice(&value.to_le_bytes());
        }
        for list in [self.arguments, self.env] {
            number(&mut message, list.len());
            for item in list {
                number(&mut message, item.len());
                message.extend_from_slice(item);
            }
        }
        message
    }
}

/// Returns the numbers that a zygote needs: those of this architecture's system calls, and the
/// resource limits of every program.
fn numbers() -> Vec<u8> {
    let calls = [
        ("setns", libc::SYS_setns),
        ("unshare", libc::SYS_unshare),
        ("prctl", libc::SYS_prctl),
        ("prlimit64", libc::SYS_prlimit64),
        ("capset", libc::SYS_capset),
        ("seccomp", libc::SYS_seccomp),
        ("close_range", libc::SYS_close_range),
        ("landlock_restrict_self", libc::SYS_landlock_restrict_self),
        ("CLONE_NEWPID", libc::CLONE_NEWPID.into()),
        ("CLONE_NEWCGROUP", libc::CLONE_NEWCGROUP.into()),
    ];
    let calls = calls.iter().map(|(name, number)| format!("{name}={number}"));
    let limits = payload::COMMON_LIMITS.iter();
    let limits = limits.map(|(resource, value)| format!("limit{resource}={value}"));
    calls.chain(limits).collect::<Vec<_>>().join("\n").into_bytes()
}
