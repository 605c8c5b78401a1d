//! The system calls of this crate, each behind a safe face. All `unsafe` of Cove is in this file
//! and its children, which have those of one purpose each.
//!
//! The faces are as thin as the kernel lets them be: one call, its errno as an [`io::Error`], and
//! ownership of descriptors as types. Nothing here decides anything.
#![expect(unsafe_code, reason = "this is the one module that talks to the kernel directly")]

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

pub(crate) mod files;
pub(crate) mod memory;
pub(crate) mod mounts;
pub(crate) mod session;

/// Descriptors that one message may carry; the kernel's own maximum is 253 (`SCM_MAX_FD`).
pub(crate) const MESSAGE_FDS_MAX: usize = 72;

fn check(rc: c_long) -> io::Result<c_long> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc) }
}

fn check_int(rc: c_int) -> io::Result<c_int> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc) }
}

/// Takes ownership of a descriptor that a call has just returned.
fn own(fd: c_long) -> io::Result<OwnedFd> {
    let fd = c_int::try_from(check(fd)?).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: the kernel has just returned this descriptor to us and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Takes ownership of the descriptor with this number, if it is open.
///
/// For the one descriptor that a re-executed process inherits by convention.
pub(crate) fn adopt(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD only reads the flags of whatever the number names.
    check_int(unsafe { libc::fcntl(fd, libc::F_GETFD) })?;
    // SAFETY: it is open (checked above), and the convention makes the caller its only user.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Which kernel clock to read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// Time since boot that nobody sets (`CLOCK_MONOTONIC`).
    Monotonic,
    /// CPU time of a process by its pid, all threads (clock_getcpuclockid(3)).
    ProcessCpu(libc::pid_t),
}

/// Reads a clock.
pub(crate) fn clock(clock: Clock) -> io::Result<Duration> {
    let id = match clock {
        Clock::Monotonic => libc::CLOCK_MONOTONIC,
        // The kernel's encoding: the complement of the pid, three low bits for the kind
        // (CPUCLOCK_SCHED).
        Clock::ProcessCpu(pid) => ((!pid) << 3) | 2,
    };
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: `time` is valid for writes of one timespec.
    check_int(unsafe { libc::clock_gettime(id, time.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so the kernel has filled it in.
    let time = unsafe { time.assume_init() };
    Ok(Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0)))
}

/// CPU time of all children that were waited for (`RUSAGE_CHILDREN`).
pub(crate) fn children_cpu() -> io::Result<Duration> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: `usage` is valid for writes of one rusage.
    check_int(unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so the kernel has filled it in.
    let usage = unsafe { usage.assume_init() };
    let of = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec.unsigned_abs())
            + Duration::from_micros(t.tv_usec.unsigned_abs())
    };
    Ok(of(usage.ru_utime) + of(usage.ru_stime))
}

/// Effective user and group id.
pub(crate) fn effective_ids() -> (u32, u32) {
    // SAFETY: cannot fail and touches no memory.
    let uid = unsafe { libc::geteuid() };
    // SAFETY: likewise.
    let gid = unsafe { libc::getegid() };
    (uid, gid)
}

/// Number of processors this process may use; at least 1.
pub(crate) fn cpus() -> u32 {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: the buffer has the size that is passed with it.
    let rc =
        unsafe { libc::sched_getaffinity(0, mem::size_of::<libc::cpu_set_t>(), set.as_mut_ptr()) };
    if rc != 0 {
        return 1;
    }
    // SAFETY: zeroed is a valid cpu_set_t, and the kernel has filled it in.
    let set = unsafe { set.assume_init() };
    // SAFETY: reads the set only.
    u32::try_from(unsafe { libc::CPU_COUNT(&set) }).unwrap_or(1).max(1)
}

// ---- processes ---------------------------------------------------------------------------------

/// linux/sched.h; the `libc` crate's constant is too narrow for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// A child that [`fork`] started.
#[derive(Debug)]
pub(crate) struct Child {
    /// Its pid in the caller's pid namespace.
    pub(crate) pid: libc::pid_t,
    /// Readable when it has ended.
    pub(crate) pidfd: OwnedFd,
}

/// `clone3(2)` in the manner of fork: the child runs `child` on a copy of this memory and exits
/// with what it returns.
///
/// Must only be called in a process with one thread (the spawner and the guest init are), because
/// only the calling thread exists in the child: a lock that another thread holds would stay locked.
pub(crate) fn fork(
    flags: c_int,
    cgroup: Option<BorrowedFd<'_>>,
    child: impl FnOnce() -> c_int,
) -> io::Result<Child> {
    let mut pidfd: c_int = -1;
    // SAFETY: all-zero is a valid clone_args.
    let mut args: libc::clone_args = unsafe { mem::zeroed() };
    args.flags = (flags | libc::CLONE_PIDFD).cast_unsigned().into();
    args.pidfd = ptr::from_mut(&mut pidfd) as u64;
    args.exit_signal = libc::SIGCHLD.cast_unsigned().into();
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = u64::from(cgroup.as_raw_fd().cast_unsigned());
    }
    // SAFETY: no stack is given and CLONE_VM is not set, so the child goes on with a copy of this
    // one; `args` outlives the call and its size is passed.
    let pid = check(unsafe {
        libc::syscall(
            libc::SYS_clone3,
            ptr::from_mut(&mut args),
            mem::size_of::<libc::clone_args>(),
        )
    })?;
    if pid == 0 {
        let code = child();
        // SAFETY: ends this process without running destructors of the copied parent.
        unsafe { libc::_exit(code) }
    }
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ERANGE))?;
    // SAFETY: CLONE_PIDFD made the kernel store a new descriptor there.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Child { pid, pidfd })
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

/// Waits for any child without blocking; `None` when no child has ended. `ECHILD` when there is
/// none.
pub(crate) fn reap_any() -> io::Result<Option<(libc::pid_t, Ended)>> {
    reap(-1, libc::WNOHANG)
}

/// Waits for any child, blocking. `ECHILD` when there is none.
pub(crate) fn wait_any() -> io::Result<Option<(libc::pid_t, Ended)>> {
    reap(-1, 0)
}

/// Waits for this child, which is known to have ended.
pub(crate) fn wait_pid(pid: libc::pid_t) -> io::Result<Option<(libc::pid_t, Ended)>> {
    reap(pid, 0)
}

fn reap(pid: libc::pid_t, flags: c_int) -> io::Result<Option<(libc::pid_t, Ended)>> {
    let mut status: c_int = 0;
    // __WALL also reaps children that a thread of this process made with another exit signal.
    // SAFETY: `status` is valid for writes.
    let pid = check_int(unsafe { libc::waitpid(pid, &mut status, flags | libc::__WALL) })?;
    if pid == 0 {
        return Ok(None);
    }
    let ended = if libc::WIFSIGNALED(status) {
        Ended::Signal(libc::WTERMSIG(status))
    } else {
        Ended::Code(libc::WEXITSTATUS(status))
    };
    Ok(Some((pid, ended)))
}

/// `kill(-1, SIGKILL)`: everything in this pid namespace except the caller, which is its pid 1.
pub(crate) fn kill_all_others() -> io::Result<()> {
    // Outside a pid namespace of our own this would be a disaster.
    // SAFETY: touches no memory.
    if unsafe { libc::getpid() } != 1 {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    // SAFETY: touches no memory.
    check_int(unsafe { libc::kill(-1, libc::SIGKILL) }).map(drop)
}

/// `kill(2)` of a process group of this pid namespace. `ESRCH` when it has no process.
pub(crate) fn signal_group(leader: libc::pid_t, signal: c_int) -> io::Result<()> {
    // 0 and 1 would be the caller's own group and everybody.
    if leader <= 1 {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    // SAFETY: touches no memory.
    check_int(unsafe { libc::kill(-leader, signal) }).map(drop)
}

/// `pidfd_send_signal(2)` with SIGKILL.
pub(crate) fn kill_pidfd(pidfd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a null siginfo means an ordinary signal; the descriptor is open.
    check(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            libc::SIGKILL,
            ptr::null::<c_void>(),
            0,
        )
    })
    .map(drop)
}

/// A child of this process that another one started: its pid, and a descriptor for it.
pub(crate) fn adopted_child(pid: libc::pid_t) -> io::Result<Child> {
    // SAFETY: touches no memory.
    let pidfd = own(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    Ok(Child { pid, pidfd })
}

/// `prctl(2)` with integer arguments only.
pub(crate) fn prctl(option: c_int, arg: c_ulong) -> io::Result<()> {
    // SAFETY: the callers pass options whose argument is an integer; unused ones are zero as the
    // kernel demands.
    check_int(unsafe { libc::prctl(option, arg, 0 as c_ulong, 0 as c_ulong, 0 as c_ulong) })
        .map(drop)
}

/// Name of this process as `ps` shows it; 15 bytes at most.
pub(crate) fn set_name(name: &CStr) -> io::Result<()> {
    // SAFETY: PR_SET_NAME reads a NUL-terminated string of at most 16 bytes.
    check_int(unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) }).map(drop)
}

/// `unshare(2)`.
pub(crate) fn unshare(flags: c_int) -> io::Result<()> {
    // SAFETY: touches no memory.
    check_int(unsafe { libc::unshare(flags) }).map(drop)
}

/// `setns(2)`.
pub(crate) fn setns(fd: BorrowedFd<'_>, kind: c_int) -> io::Result<()> {
    // SAFETY: touches no memory.
    check_int(unsafe { libc::setns(fd.as_raw_fd(), kind) }).map(drop)
}

/// `setsid(2)`.
pub(crate) fn setsid() -> io::Result<()> {
    // SAFETY: touches no memory.
    check_int(unsafe { libc::setsid() }).map(drop)
}

/// `sethostname(2)`.
pub(crate) fn sethostname(name: &str) -> io::Result<()> {
    // SAFETY: pointer and length belong together.
    check_int(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) }).map(drop)
}

/// `umask(2)`; returns nothing because nobody asks.
pub(crate) fn umask(mask: u32) {
    // SAFETY: cannot fail and touches no memory.
    unsafe { libc::umask(mask) };
}

// ---- identity and privilege --------------------------------------------------------------------

/// Gives up all supplementary groups.
pub(crate) fn clear_groups() -> io::Result<()> {
    // SAFETY: a length of zero reads no memory.
    check_int(unsafe { libc::setgroups(0, ptr::null()) }).map(drop)
}

/// Real, effective and saved user id of this (only) thread. The raw call, because glibc's signals
/// other threads, of which there are none.
pub(crate) fn setresuid(uid: u32) -> io::Result<()> {
    // SAFETY: touches no memory.
    check(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) }).map(drop)
}

/// Real, effective and saved group id.
pub(crate) fn setresgid(gid: u32) -> io::Result<()> {
    // SAFETY: touches no memory.
    check(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) }).map(drop)
}

/// User and group id for file system checks only.
pub(crate) fn setfsids(uid: u32, gid: u32) {
    // SAFETY: touches no memory. These calls return the earlier id and cannot tell of failure; the
    // files made under them are checked by what the caller does with them.
    unsafe { libc::syscall(libc::SYS_setfsgid, gid) };
    // SAFETY: likewise.
    unsafe { libc::syscall(libc::SYS_setfsuid, uid) };
}

/// Header and data of capget(2) and capset(2) in the kernel's third version.
#[repr(C)]
struct CapHeader {
    version: u32,
    pid: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

static CAP_HEADER: CapHeader = CapHeader { version: 0x2008_0522, pid: 0 };

/// The capabilities that this process is permitted.
pub(crate) fn capabilities() -> io::Result<u64> {
    let mut data = [CapData { effective: 0, permitted: 0, inheritable: 0 }; 2];
    // SAFETY: version 3 reads one header and writes two data elements, which is what is passed.
    check(unsafe { libc::syscall(libc::SYS_capget, &raw const CAP_HEADER, data.as_mut_ptr()) })?;
    Ok(u64::from(data[0].permitted) | u64::from(data[1].permitted) << 32)
}

/// Makes exactly these capabilities permitted and effective, and none inheritable.
pub(crate) fn set_capabilities(mask: u64) -> io::Result<()> {
    let half = |bits: u64| u32::try_from(bits & 0xffff_ffff).unwrap_or(0);
    let data = [half(mask), half(mask >> 32)].map(|bits| CapData {
        effective: bits,
        permitted: bits,
        inheritable: 0,
    });
    // SAFETY: version 3 reads one header and two data elements, which is what is passed.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw const CAP_HEADER, data.as_ptr()) })
        .map(drop)
}

/// Makes exactly these capabilities permitted, effective and inheritable, and takes them along
/// through `execve` (they are made ambient).
pub(crate) fn keep_capabilities(mask: u64) -> io::Result<()> {
    let half = |bits: u64| u32::try_from(bits & 0xffff_ffff).unwrap_or(0);
    let data = [half(mask), half(mask >> 32)].map(|bits| CapData {
        effective: bits,
        permitted: bits,
        inheritable: bits,
    });
    // SAFETY: version 3 reads one header and two data elements, which is what is passed.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw const CAP_HEADER, data.as_ptr()) })?;
    for capability in (0..64).filter(|bit| mask >> bit & 1 == 1) {
        let capability: c_ulong = capability;
        // SAFETY: integer arguments only; unused ones are zero as the kernel demands.
        check_int(unsafe {
            libc::prctl(
                libc::PR_CAP_AMBIENT,
                libc::PR_CAP_AMBIENT_RAISE as c_ulong,
                capability,
                0 as c_ulong,
                0 as c_ulong,
            )
        })?;
    }
    Ok(())
}

/// Makes these capabilities inheritable as far as they are permitted, and changes nothing else.
pub(crate) fn set_inheritable(mask: u64) -> io::Result<()> {
    let permitted = capabilities()?;
    let half = |bits: u64| u32::try_from(bits & 0xffff_ffff).unwrap_or(0);
    let data = [0, 32].map(|shift| CapData {
        effective: half(permitted >> shift),
        permitted: half(permitted >> shift),
        inheritable: half((permitted & mask) >> shift),
    });
    // SAFETY: version 3 reads one header and two data elements, which is what is passed.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw const CAP_HEADER, data.as_ptr()) })
        .map(drop)
}

/// `prlimit(2)` on this process: soft and hard limit alike.
pub(crate) fn set_limit(resource: c_uint, value: u64) -> io::Result<()> {
    let limit = libc::rlimit64 { rlim_cur: value, rlim_max: value };
    // SAFETY: reads one rlimit64; the old value is not asked for.
    check(unsafe {
        libc::syscall(libc::SYS_prlimit64, 0, resource, &raw const limit, ptr::null::<c_void>())
    })
    .map(drop)
}

/// Sets this process's soft limit, and leaves the hard one as it is.
pub(crate) fn set_soft_limit(resource: c_uint, value: u64) -> io::Result<()> {
    let limit = libc::rlimit64 { rlim_cur: value, rlim_max: hard_limit(resource)? };
    // SAFETY: reads one rlimit64; the old value is not asked for.
    check(unsafe {
        libc::syscall(libc::SYS_prlimit64, 0, resource, &raw const limit, ptr::null::<c_void>())
    })
    .map(drop)
}

/// Hard limit of this process for `resource`.
pub(crate) fn hard_limit(resource: c_uint) -> io::Result<u64> {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes one rlimit64; no new value is given.
    check(unsafe {
        libc::syscall(libc::SYS_prlimit64, 0, resource, ptr::null::<c_void>(), &raw mut limit)
    })?;
    Ok(limit.rlim_max)
}

/// One classic BPF instruction (`struct sock_filter`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BpfInstruction {
    pub(crate) code: u16,
    pub(crate) jt: u8,
    pub(crate) jf: u8,
    pub(crate) k: u32,
}

impl BpfInstruction {
    /// As it lies in memory.
    pub(crate) fn bytes(&self) -> [u8; 8] {
        let ([a, b], [c, d, e, f]) = (self.code.to_ne_bytes(), self.k.to_ne_bytes());
        [a, b, self.jt, self.jf, c, d, e, f]
    }
}

/// Installs a seccomp filter on this thread and its descendants, for good.
pub(crate) fn set_seccomp(program: &[BpfInstruction]) -> io::Result<()> {
    #[repr(C)]
    struct Program {
        length: u16,
        filter: *const BpfInstruction,
    }
    let length =
        u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let program = Program { length, filter: program.as_ptr() };
    // SAFETY: `program` points to `length` instructions of the kernel's layout and outlives the
    // call.
    check(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program)
    })
    .map(drop)
}

/// Version of the Landlock interface; an error when the kernel has none.
pub(crate) fn landlock_abi() -> io::Result<i64> {
    const CREATE_RULESET_VERSION: c_uint = 1;
    // SAFETY: with this flag a null attribute of size zero is the documented question.
    check(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            ptr::null::<c_void>(),
            0usize,
            CREATE_RULESET_VERSION,
        )
    })
}

/// A new Landlock ruleset that handles these file system accesses.
pub(crate) fn landlock_ruleset(handled: u64) -> io::Result<OwnedFd> {
    // SAFETY: the first version's attribute is this one field, and its size is passed.
    own(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const handled,
            mem::size_of::<u64>(),
            0,
        )
    })
}

/// Allows `access` beneath a directory.
pub(crate) fn landlock_allow(
    ruleset: BorrowedFd<'_>,
    dir: BorrowedFd<'_>,
    access: u64,
) -> io::Result<()> {
    #[repr(C, packed)]
    struct PathBeneath {
        access: u64,
        fd: c_int,
    }
    const RULE_PATH_BENEATH: c_int = 1;
    let rule = PathBeneath { access, fd: dir.as_raw_fd() };
    // SAFETY: the rule has the kernel's packed layout and outlives the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            RULE_PATH_BENEATH,
            &raw const rule,
            0,
        )
    })
    .map(drop)
}

/// Enforces a ruleset on this thread and its descendants, for good.
pub(crate) fn landlock_restrict(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: touches no memory.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })
        .map(drop)
}

// ---- signals -----------------------------------------------------------------------------------

/// Ignores a signal.
pub(crate) fn ignore_signal(signal: c_int) -> io::Result<()> {
    set_signal(signal, libc::SIG_IGN)
}

/// Gives a signal its default effect again.
pub(crate) fn default_signal(signal: c_int) -> io::Result<()> {
    set_signal(signal, libc::SIG_DFL)
}

fn set_signal(signal: c_int, disposition: libc::sighandler_t) -> io::Result<()> {
    // SAFETY: only SIG_IGN and SIG_DFL are installed, so no code of ours runs in a handler.
    match unsafe { libc::signal(signal, disposition) } {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Blocks no signal at all.
pub(crate) fn unblock_signals() -> io::Result<()> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `set` is valid for writes.
    check_int(unsafe { libc::sigemptyset(set.as_mut_ptr()) })?;
    // SAFETY: sigemptyset has initialised it; the old mask is not asked for.
    check_int(unsafe { libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), ptr::null_mut()) })
        .map(drop)
}

/// Blocks SIGCHLD and returns a descriptor that is readable when one is pending.
pub(crate) fn sigchld_fd() -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `set` is valid for writes.
    check_int(unsafe { libc::sigemptyset(set.as_mut_ptr()) })?;
    // SAFETY: sigemptyset has initialised it.
    check_int(unsafe { libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD) })?;
    // SAFETY: it is initialised; the old mask is not asked for.
    check_int(unsafe { libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut()) })?;
    // SAFETY: it is initialised; -1 asks for a new descriptor.
    own(unsafe { libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) }.into())
}

/// Empties a descriptor of [`sigchld_fd`].
pub(crate) fn drain_signals(fd: BorrowedFd<'_>) {
    let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
    let size = mem::size_of::<libc::signalfd_siginfo>();
    // SAFETY: the buffer has the size that is passed; its content is not looked at.
    while unsafe { libc::read(fd.as_raw_fd(), info.as_mut_ptr().cast(), size) } > 0 {}
}

// ---- descriptors and files ---------------------------------------------------------------------

/// `openat(2)`, always close-on-exec.
pub(crate) fn openat(
    dir: BorrowedFd<'_>,
    path: &CStr,
    flags: c_int,
    mode: u32,
) -> io::Result<OwnedFd> {
    // SAFETY: `path` is NUL-terminated.
    own(unsafe { libc::openat(dir.as_raw_fd(), path.as_ptr(), flags | libc::O_CLOEXEC, mode) }
        .into())
}

/// `open(2)` of an absolute path, always close-on-exec.
pub(crate) fn open(path: &CStr, flags: c_int) -> io::Result<OwnedFd> {
    // SAFETY: `path` is NUL-terminated.
    own(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC) }.into())
}

/// `openat2(2)` that never leaves `dir`, follows no link of any kind and crosses no mount.
///
/// The only way in which the privileged side opens a path in storage that sandboxed code controls.
pub(crate) fn open_beneath(
    dir: BorrowedFd<'_>,
    path: &CStr,
    flags: c_int,
    mode: u32,
) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct OpenHow {
        flags: u64,
        mode: u64,
        resolve: u64,
    }
    let how = OpenHow {
        flags: u64::from(
            (flags | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NOCTTY).cast_unsigned(),
        ),
        mode: u64::from(mode),
        resolve: libc::RESOLVE_BENEATH
            | libc::RESOLVE_NO_SYMLINKS
            | libc::RESOLVE_NO_MAGICLINKS
            | libc::RESOLVE_NO_XDEV,
    };
    // SAFETY: `path` is NUL-terminated, `how` has the kernel's layout and its size is passed.
    own(unsafe {
        libc::syscall(
            libc::SYS_openat2,
            dir.as_raw_fd(),
            path.as_ptr(),
            &raw const how,
            mem::size_of::<OpenHow>(),
        )
    })
}

/// `mkdirat(2)`.
pub(crate) fn mkdirat(dir: BorrowedFd<'_>, path: &CStr, mode: u32) -> io::Result<()> {
    // SAFETY: `path` is NUL-terminated.
    check_int(unsafe { libc::mkdirat(dir.as_raw_fd(), path.as_ptr(), mode) }).map(drop)
}

/// `symlinkat(2)`.
pub(crate) fn symlinkat(target: &CStr, dir: BorrowedFd<'_>, path: &CStr) -> io::Result<()> {
    // SAFETY: both strings are NUL-terminated.
    check_int(unsafe { libc::symlinkat(target.as_ptr(), dir.as_raw_fd(), path.as_ptr()) }).map(drop)
}

/// `unlinkat(2)` of a directory.
pub(crate) fn rmdirat(dir: BorrowedFd<'_>, path: &CStr) -> io::Result<()> {
    // SAFETY: `path` is NUL-terminated.
    check_int(unsafe { libc::unlinkat(dir.as_raw_fd(), path.as_ptr(), libc::AT_REMOVEDIR) })
        .map(drop)
}

/// `fchmod(2)`.
pub(crate) fn fchmod(fd: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    // SAFETY: touches no memory.
    check_int(unsafe { libc::fchmod(fd.as_raw_fd(), mode) }).map(drop)
}

/// `fchown(2)`.
pub(crate) fn fchown(fd: BorrowedFd<'_>, uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: touches no memory.
    check_int(unsafe { libc::fchown(fd.as_raw_fd(), uid, gid) }).map(drop)
}

/// Whether it is a pipe without a name: one with a name is somebody's file.
pub(crate) fn is_pipe(fd: BorrowedFd<'_>) -> io::Result<bool> {
    // linux/magic.h
    const PIPEFS_MAGIC: i64 = 0x5049_5045;
    Ok(statfs(fd)?.f_type == PIPEFS_MAGIC)
}

fn statfs(fd: BorrowedFd<'_>) -> io::Result<libc::statfs> {
    let mut stat = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `stat` is valid for writes.
    check_int(unsafe { libc::fstatfs(fd.as_raw_fd(), stat.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so the kernel has filled it in.
    Ok(unsafe { stat.assume_init() })
}

/// Size of a regular file in bytes; `EINVAL` for anything that is not one.
pub(crate) fn regular_file_size(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `stat` is valid for writes.
    check_int(unsafe { libc::fstat(fd.as_raw_fd(), stat.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so the kernel has filled it in.
    let stat = unsafe { stat.assume_init() };
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    Ok(stat.st_size.unsigned_abs())
}

/// Bytes and inodes in use on the file system that `fd` is on.
pub(crate) fn usage(fd: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let stat = statfs(fd)?;
    let block = u64::try_from(stat.f_bsize).unwrap_or(4096);
    let bytes = stat.f_blocks.saturating_sub(stat.f_bfree).saturating_mul(block);
    Ok((bytes, stat.f_files.saturating_sub(stat.f_ffree)))
}

/// `read(2)`.
pub(crate) fn read(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
    // SAFETY: pointer and length belong together.
    let n = unsafe { libc::read(fd.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len()) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n.unsigned_abs()) }
}

/// `pread(2)`.
pub(crate) fn pread(fd: BorrowedFd<'_>, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let offset =
        libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: pointer and length belong together.
    let n = unsafe { libc::pread(fd.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len(), offset) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n.unsigned_abs()) }
}

/// `write(2)`.
pub(crate) fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: pointer and length belong together.
    let n = unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n.unsigned_abs()) }
}

/// Copies the first `len` bytes of a file to where another one stands, in the kernel. The position
/// of the first stays as it is, because others read it, too.
///
/// `sendfile(2)`, because `copy_file_range(2)` does not copy between two file systems.
pub(crate) fn copy_from_start(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    len: u64,
) -> io::Result<()> {
    let mut offset: libc::off_t = 0;
    while let left @ 1.. = len.saturating_sub(offset.unsigned_abs()) {
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        // SAFETY: `offset` is valid for reads and writes.
        let n = unsafe { libc::sendfile(to.as_raw_fd(), from.as_raw_fd(), &raw mut offset, left) };
        if n < 0 {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        if n == 0 {
            // Shorter than it was when its length was taken.
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
    }
    Ok(())
}

/// Writes all of `bytes`.
pub(crate) fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: pointer and length belong together.
        let n = unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
        if n < 0 {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        bytes = bytes.get(n.unsigned_abs()..).unwrap_or(&[]);
    }
    Ok(())
}

/// All of a regular file.
pub(crate) fn read_file(fd: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let size = usize::try_from(regular_file_size(fd)?).unwrap_or(usize::MAX);
    let mut content = vec![0; size];
    let mut done = 0;
    while let Some(rest) = content.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match pread(fd, rest, done as u64)? {
            0 => break,
            n => done += n,
        }
    }
    content.truncate(done);
    Ok(content)
}

/// `pipe2(2)`, close-on-exec: read end, write end.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [-1 as c_int; 2];
    // SAFETY: `fds` has room for two descriptors.
    check_int(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: the call succeeded; nobody else knows this descriptor.
    let read = unsafe { OwnedFd::from_raw_fd(fds[0]) };
    // SAFETY: likewise.
    let write = unsafe { OwnedFd::from_raw_fd(fds[1]) };
    Ok((read, write))
}

/// Makes reads and writes return `EAGAIN` instead of blocking.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: reads the flags only.
    let flags = check_int(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: sets flags only.
    check_int(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) })
        .map(drop)
}

/// `dup2(2)` for the three standard streams, without close-on-exec.
pub(crate) fn dup_onto(fd: BorrowedFd<'_>, target: RawFd) -> io::Result<()> {
    // Only standard streams are replaced: any other number may belong to an OwnedFd.
    if !(0..=2).contains(&target) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: `target` is a standard stream, which no OwnedFd of ours stands for.
    check_int(unsafe { libc::dup2(fd.as_raw_fd(), target) }).map(drop)
}

/// `fcntl(2)` with F_DUPFD_CLOEXEC: a copy with the lowest free number from `least` on.
pub(crate) fn dup_from(fd: BorrowedFd<'_>, least: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: makes a new descriptor and touches no memory.
    own(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) }.into())
}

/// `dup2(2)`, without close-on-exec, for a program that is about to be executed.
///
/// Whatever had the number is closed, although an OwnedFd in this memory may stand for it. So it is
/// only for a forked child that uses none of its descriptors any more, and ends by `execve` or
/// `_exit`.
pub(crate) fn dup_for_program(fd: &OwnedFd, target: RawFd) -> io::Result<()> {
    // SAFETY: touches no memory; by the condition above nobody uses what had the number.
    check_int(unsafe { libc::dup2(fd.as_raw_fd(), target) }).map(drop)
}

/// Marks every descriptor from `first` on close-on-exec.
pub(crate) fn cloexec_from(first: c_uint) -> io::Result<()> {
    const CLOSE_RANGE_CLOEXEC: c_uint = 4;
    // SAFETY: closes nothing now, so no OwnedFd is invalidated.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, c_uint::MAX, CLOSE_RANGE_CLOEXEC) })
        .map(drop)
}

/// Closes every descriptor from `first` to `last`.
///
/// For the first moments of a forked child, which holds copies of its parent's descriptors whose
/// owners (in copied memory) are never dropped, because the child ends by `_exit` or `execve`.
pub(crate) fn close_inherited(first: c_uint, last: c_uint) -> io::Result<()> {
    if first > last {
        return Ok(());
    }
    // SAFETY: touches no memory; the callers keep every descriptor that they go on to use outside
    // the range.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) }).map(drop)
}

/// An anonymous file with this content, sealed against change.
pub(crate) fn memfd(name: &CStr, content: &[u8]) -> io::Result<OwnedFd> {
    // SAFETY: `name` is NUL-terminated.
    let fd = own(unsafe {
        libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
    }
    .into())?;
    let borrowed = std::os::fd::AsFd::as_fd(&fd);
    write_all(borrowed, content)?;
    let seals = libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
    // SAFETY: sets seals only.
    check_int(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
    Ok(fd)
}

/// Puts a file in the place of the memory that the loader has relocated and made read-only
/// (`PT_GNU_RELRO`). In an executable that can be anywhere, that is a page of one's own for each
/// 4 KiB of pointers, and every fork copies their entries, twice for each sandbox; pages of a file
/// are found again when they are needed.
///
/// Does nothing where the executable has no such memory. Only for a process of one thread.
pub(crate) fn share_relocated() -> io::Result<()> {
    // SAFETY: reads the auxiliary vector, which the kernel has put there.
    let headers = unsafe { libc::getauxval(libc::AT_PHDR) };
    // SAFETY: likewise.
    let count = unsafe { libc::getauxval(libc::AT_PHNUM) };
    let (Ok(headers), Ok(count)) = (usize::try_from(headers), usize::try_from(count)) else {
        return Ok(());
    };
    if headers == 0 || count == 0 {
        return Ok(());
    }
    let first = std::ptr::with_exposed_provenance::<libc::Elf64_Phdr>(headers);
    // SAFETY: the kernel says where the program headers are and how many; they are never changed.
    let headers_of = unsafe { std::slice::from_raw_parts(first, count) };
    let of_kind = |kind| headers_of.iter().find(|header| header.p_type == kind);
    let (Some(own), Some(relro)) = (of_kind(libc::PT_PHDR), of_kind(libc::PT_GNU_RELRO)) else {
        return Ok(());
    };
    let at = |address: u64| usize::try_from(address).unwrap_or(usize::MAX);
    let base = headers.wrapping_sub(at(own.p_vaddr));
    // SAFETY: asks for a number.
    let page_bytes = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let page = |address: usize| address & !(page_bytes - 1);
    // As the loader does it (`_dl_protect_relro` of glibc): both ends are rounded down.
    let start = page(base.wrapping_add(at(relro.p_vaddr)));
    let end = page(base.wrapping_add(at(relro.p_vaddr)).wrapping_add(at(relro.p_memsz)));
    let Some(bytes) = end.checked_sub(start).filter(|bytes| *bytes > 0) else { return Ok(()) };
    let memory = std::ptr::with_exposed_provenance::<u8>(start);
    // SAFETY: the loader has mapped this range and protected it against writing.
    let content = unsafe { std::slice::from_raw_parts(memory, bytes) };
    let file = memfd(c"cove-relocated", content)?;
    // SAFETY: replaces read-only memory by the same bytes, read-only, in one step; no other thread
    // could look meanwhile.
    let mapped = unsafe {
        libc::mmap(
            std::ptr::with_exposed_provenance_mut(start),
            bytes,
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_FIXED,
            file.as_raw_fd(),
            0,
        )
    };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

// ---- terminals ---------------------------------------------------------------------------------

/// Lets the other side of a new terminal be opened (`TIOCSPTLCK`).
pub(crate) fn unlock_terminal(controller: BorrowedFd<'_>) -> io::Result<()> {
    let locked: c_int = 0;
    // SAFETY: the call reads one int.
    check_int(unsafe { libc::ioctl(controller.as_raw_fd(), libc::TIOCSPTLCK, &raw const locked) })
        .map(drop)
}

/// Opens the program's side of a terminal without a path (`TIOCGPTPEER`), and not as the caller's
/// own terminal.
pub(crate) fn open_terminal_peer(controller: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: the argument is an integer; a new descriptor is returned.
    own(unsafe { libc::ioctl(controller.as_raw_fd(), libc::TIOCGPTPEER, flags) }.into())
}

/// Makes a terminal the caller's own (`TIOCSCTTY`); the caller leads a session that has none.
pub(crate) fn take_terminal(terminal: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the argument is an integer.
    check_int(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0 as c_int) }).map(drop)
}

/// Sets the size of a terminal in characters (`TIOCSWINSZ`); its foreground processes are told.
pub(crate) fn set_terminal_size(terminal: BorrowedFd<'_>, rows: u16, cols: u16) -> io::Result<()> {
    let size = libc::winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the call reads one winsize.
    check_int(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) })
        .map(drop)
}

/// The character that ends input at a terminal; none where that is switched off.
pub(crate) fn terminal_eof(terminal: BorrowedFd<'_>) -> io::Result<Option<u8>> {
    let mut settings = MaybeUninit::<libc::termios>::uninit();
    // SAFETY: `settings` is valid for writes.
    check_int(unsafe { libc::tcgetattr(terminal.as_raw_fd(), settings.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so it has been filled in.
    let settings = unsafe { settings.assume_init() };
    let eof = settings.c_cc.get(libc::VEOF).copied().unwrap_or(0);
    // _POSIX_VDISABLE is 0 on Linux.
    Ok((eof != 0).then_some(eof))
}

// ---- mounts ------------------------------------------------------------------------------------

/// `mount(2)`. Absent strings are null pointers, as the kernel documents for the flags that ignore
/// them.
pub(crate) fn mount(
    source: Option<&CStr>,
    target: &CStr,
    kind: Option<&CStr>,
    flags: c_ulong,
    data: Option<&CStr>,
) -> io::Result<()> {
    let pointer = |s: Option<&CStr>| s.map_or(ptr::null::<c_char>(), CStr::as_ptr);
    // SAFETY: every pointer is null or NUL-terminated and outlives the call.
    check_int(unsafe {
        libc::mount(pointer(source), target.as_ptr(), pointer(kind), flags, pointer(data).cast())
    })
    .map(drop)
}

/// `mount_setattr(2)` with `AT_RECURSIVE`: sets these `MOUNT_ATTR_*` on a mount and all below it.
pub(crate) fn mount_setattr_recursive(path: &CStr, set: u64) -> io::Result<()> {
    #[repr(C)]
    struct MountAttr {
        set: u64,
        clear: u64,
        propagation: u64,
        userns_fd: u64,
    }
    let attr = MountAttr { set, clear: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: `path` is NUL-terminated, `attr` has the kernel's layout and its size is passed.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attr,
            mem::size_of::<MountAttr>(),
        )
    })
    .map(drop)
}

/// `pivot_root(".", ".")` and the lazy unmount of the old root below it, which pivot_root(2)
/// allows.
pub(crate) fn pivot_here() -> io::Result<()> {
    let here = c".".as_ptr();
    // SAFETY: both paths are NUL-terminated.
    check(unsafe { libc::syscall(libc::SYS_pivot_root, here, here) })?;
    // SAFETY: the path is NUL-terminated.
    check_int(unsafe { libc::umount2(here, libc::MNT_DETACH) }).map(drop)
}

/// `mknod(2)` of a character device.
pub(crate) fn mknod_char(path: &CStr, mode: u32, major: u32, minor: u32) -> io::Result<()> {
    // SAFETY: `path` is NUL-terminated.
    check_int(unsafe {
        libc::mknod(path.as_ptr(), libc::S_IFCHR | mode, libc::makedev(major, minor))
    })
    .map(drop)
}

// ---- messages ----------------------------------------------------------------------------------

/// A pair of connected sockets that keep message boundaries, close-on-exec.
pub(crate) fn message_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [-1 as c_int; 2];
    // SAFETY: `fds` has room for two descriptors.
    check_int(unsafe {
        libc::socketpair(
            libc::AF_UNIX,
            libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC,
            0,
            fds.as_mut_ptr(),
        )
    })?;
    // SAFETY: the call succeeded; nobody else knows this descriptor.
    let left = unsafe { OwnedFd::from_raw_fd(fds[0]) };
    // SAFETY: likewise.
    let right = unsafe { OwnedFd::from_raw_fd(fds[1]) };
    Ok((left, right))
}

/// Room for the descriptors of one message, aligned as the kernel wants it.
#[repr(C, align(8))]
struct ControlBuffer([u8; 24 + 4 * MESSAGE_FDS_MAX]);

/// Sends one message with descriptors.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    if fds.len() > MESSAGE_FDS_MAX {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut iov = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = ControlBuffer([0; 24 + 4 * MESSAGE_FDS_MAX]);
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut iov;
    message.msg_iovlen = 1;
    if !fds.is_empty() {
        let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let payload_bytes = c_uint::try_from(mem::size_of_val(raw.as_slice())).unwrap_or(0);
        message.msg_control = (&raw mut control).cast();
        // SAFETY: arithmetic on a length.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(payload_bytes) } as usize;
        // SAFETY: `message` has a control buffer that holds at least one header.
        let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        // SAFETY: arithmetic on a length.
        let length = unsafe { libc::CMSG_LEN(payload_bytes) } as usize;
        let filled = libc::cmsghdr {
            cmsg_len: length,
            cmsg_level: libc::SOL_SOCKET,
            cmsg_type: libc::SCM_RIGHTS,
        };
        // SAFETY: `header` points into `control`, aligned by its type.
        unsafe { header.write(filled) };
        // SAFETY: the data of the header lies within `control`.
        let data = unsafe { libc::CMSG_DATA(header) };
        // SAFETY: `control` has room for MESSAGE_FDS_MAX descriptors after the header, and there
        // are no more than that.
        unsafe { ptr::copy_nonoverlapping(raw.as_ptr().cast::<u8>(), data, raw.len() * 4) };
    }
    loop {
        // SAFETY: every pointer in `message` is valid for the call.
        let n =
            unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
        if n >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Receives one message with its descriptors; zero bytes at end of file. `EMSGSIZE` when there is
/// no room for the bytes, or in this process for the descriptors: then the message is lost.
pub(crate) fn receive(socket: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    match receive_message(socket, buf)? {
        (n, Some(fds)) => Ok((n, fds)),
        (_, None) => Err(io::Error::from_raw_os_error(libc::EMSGSIZE)),
    }
}

/// As [`receive`]; but where this process has no room for all descriptors the message comes without
/// any: who has many connections does not give one up for that.
pub(crate) fn receive_what_fits(
    socket: BorrowedFd<'_>,
    buf: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    receive_message(socket, buf).map(|(n, fds)| (n, fds.unwrap_or_default()))
}

/// Receives one message, with all of its descriptors or none.
fn receive_message(
    socket: BorrowedFd<'_>,
    buf: &mut [u8],
) -> io::Result<(usize, Option<Vec<OwnedFd>>)> {
    let mut iov = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    let mut control = ControlBuffer([0; 24 + 4 * MESSAGE_FDS_MAX]);
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut iov;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = mem::size_of::<ControlBuffer>();
    let n = loop {
        // SAFETY: every pointer in `message` is valid for the call.
        let n =
            unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        if n >= 0 {
            break n.unsigned_abs();
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    };
    let mut fds = Vec::new();
    // SAFETY: the kernel has filled in `message` and `control`.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !header.is_null() {
        // SAFETY: a non-null header lies within `control`.
        let filled = unsafe { header.read() };
        if filled.cmsg_level == libc::SOL_SOCKET && filled.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: arithmetic on a length.
            let head = unsafe { libc::CMSG_LEN(0) } as usize;
            // SAFETY: the data of the header lies within `control`.
            let data = unsafe { libc::CMSG_DATA(header) };
            for index in 0..filled.cmsg_len.saturating_sub(head) / 4 {
                // SAFETY: `index` is below the number of descriptors that the length allows.
                let at = unsafe { data.add(index * 4) };
                // SAFETY: four bytes of `control`, possibly unaligned.
                let fd = unsafe { ptr::read_unaligned(at.cast::<c_int>()) };
                // SAFETY: the kernel has just installed this descriptor for us.
                fds.push(unsafe { OwnedFd::from_raw_fd(fd) });
            }
        }
        // SAFETY: walks within `control` as `message` describes it.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    if message.msg_flags & libc::MSG_TRUNC != 0 {
        return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
    }
    Ok((n, (message.msg_flags & libc::MSG_CTRUNC == 0).then_some(fds)))
}

/// Makes the runtime watch a descriptor, which becomes non-blocking.
pub(crate) fn watch(fd: OwnedFd) -> io::Result<tokio::io::unix::AsyncFd<OwnedFd>> {
    set_nonblocking(std::os::fd::AsFd::as_fd(&fd))?;
    // SAFETY: an OwnedFd names the same open descriptor for as long as it lives, and the AsyncFd
    // owns it until it has been taken from the runtime's poll set.
    unsafe { tokio::io::unix::AsyncFd::register(fd) }.map_err(io::Error::from)
}

/// Waits until one of `fds` is readable or hung up, or the time is over. Tells for each which.
pub(crate) fn poll(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut polled: Vec<libc::pollfd> = fds
        .iter()
        .map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 })
        .collect();
    let timeout = timeout.map(|t| libc::timespec {
        tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(t.subsec_nanos()),
    });
    let pointer = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    let count = polled.len() as libc::nfds_t;
    // SAFETY: pointer and count belong together; the timeout is null or valid; no mask is given.
    match check_int(unsafe { libc::ppoll(polled.as_mut_ptr(), count, pointer, ptr::null()) }) {
        Ok(_) => Ok(polled.iter().map(|p| p.revents != 0).collect()),
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(vec![false; fds.len()]),
        Err(e) => Err(e),
    }
}

// ---- shared memory and exec --------------------------------------------------------------------

/// What a child that could not start its program leaves for its parent to read.
///
/// One page of memory that both share. The child writes before it exits; the parent reads after it
/// has waited for the child, so there is never a writer and a reader at one time.
#[derive(Debug)]
pub(crate) struct FailurePage {
    words: &'static [AtomicI32; 2],
}

impl FailurePage {
    /// Notes that fit into a page.
    pub(crate) const PLACES: usize = 4096 / mem::size_of::<[AtomicI32; 2]>();

    /// A new page; it lives as long as the process.
    pub(crate) fn new() -> io::Result<Self> {
        let mut places = Self::several()?;
        places.pop().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
    }

    /// As many places for notes as fit into a new page, for as many children.
    pub(crate) fn several() -> io::Result<Vec<Self>> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: an anonymous mapping at an address of the kernel's choice.
        let page = unsafe { libc::mmap(ptr::null_mut(), 4096, protection, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the page is zeroed, aligned, as large as these words and never unmapped.
        let places = unsafe { &*page.cast::<[[AtomicI32; 2]; Self::PLACES]>() };
        Ok(places.iter().map(|words| FailurePage { words }).collect())
    }

    /// Notes a failed step and its errno.
    pub(crate) fn set(&self, step: i32, errno: i32) {
        self.words[1].store(errno, Ordering::Relaxed);
        self.words[0].store(step, Ordering::Release);
    }

    /// Takes the note, if there is one.
    pub(crate) fn take(&self) -> Option<(i32, i32)> {
        match self.words[0].swap(0, Ordering::AcqRel) {
            0 => None,
            step => Some((step, self.words[1].load(Ordering::Relaxed))),
        }
    }
}

/// `execve(2)`. Returns only when it fails.
pub(crate) fn execve(path: &CStr, argv: &CStringArray, env: &CStringArray) -> io::Error {
    // SAFETY: `path` is NUL-terminated; both arrays are null-terminated arrays of NUL-terminated
    // strings by construction.
    unsafe { libc::execve(path.as_ptr(), argv.pointers.as_ptr(), env.pointers.as_ptr()) };
    io::Error::last_os_error()
}

/// A null-terminated array of NUL-terminated strings, as `execve` wants it.
#[derive(Debug)]
pub(crate) struct CStringArray {
    /// Keeps the strings alive; never changed after construction.
    _strings: Vec<std::ffi::CString>,
    pointers: Vec<*const c_char>,
}

impl CStringArray {
    pub(crate) fn new(strings: Vec<std::ffi::CString>) -> Self {
        // The heap blocks that the pointers name do not move with the vector that owns them.
        let mut pointers: Vec<*const c_char> = strings.iter().map(|s| s.as_ptr()).collect();
        pointers.push(ptr::null());
        CStringArray { _strings: strings, pointers }
    }
}
