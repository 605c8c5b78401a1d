//! System calls of processes: starting, waiting, ending, namespaces, `execve`.
//!
//! # References
//! - <https://man7.org/linux/man-pages/man2/clone.2.html>
//! - <https://man7.org/linux/man-pages/man2/pidfd_open.2.html>

use std::ffi::{CStr, CString, c_char, c_int, c_ulong, c_void};
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use super::{check, check_int, own};

/// Clock of the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KernelClock {
    /// Time since boot, which cannot be set (`CLOCK_MONOTONIC`).
    Monotonic,
    /// CPU time of a process by its pid, all threads (clock_getcpuclockid(3)).
    ProcessCpu(libc::pid_t),
}

/// Reads a clock.
pub(crate) fn clock(clock: KernelClock) -> io::Result<Duration> {
    let id = match clock {
        KernelClock::Monotonic => libc::CLOCK_MONOTONIC,
        // The kernel's encoding: the complement of the pid, three low bits for the kind
        // (CPUCLOCK_SCHED).
        KernelClock::ProcessCpu(pid) => ((!pid) << 3) | 2,
    };
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: `time` is valid for writes of one timespec.
    check_int(unsafe { libc::clock_gettime(id, time.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so the kernel has filled it in.
    let time = unsafe { time.assume_init() };
    Ok(Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0)))
}

/// Returns the CPU time of all reaped children (`RUSAGE_CHILDREN`).
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

/// Returns the number of processors this process may use; at least 1.
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

/// Sets the time slice of the calling thread and of its children. Only for the usual scheduling of
/// Linux 6.12 and later (<https://docs.kernel.org/scheduler/sched-eevdf.html>,
/// <https://man7.org/linux/man-pages/man2/sched_setattr.2.html>); older kernels accept the value
/// and ignore it.
pub(crate) fn set_time_slice(slice: Duration) -> io::Result<()> {
    let size = u32::try_from(mem::size_of::<libc::sched_attr>()).map_err(io::Error::other)?;
    // SAFETY: all-zero is a valid sched_attr.
    let mut attributes: libc::sched_attr = unsafe { mem::zeroed() };
    // SAFETY: `attributes` is valid for writes of the size that is passed.
    check(unsafe {
        libc::syscall(libc::SYS_sched_getattr, 0, ptr::from_mut(&mut attributes), size, 0)
    })?;
    if attributes.sched_policy != libc::SCHED_OTHER.cast_unsigned() {
        return Ok(());
    }
    attributes.sched_runtime = u64::try_from(slice.as_nanos()).map_err(io::Error::other)?;
    // SAFETY: `attributes` outlives the call and says its own size.
    check(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, ptr::from_ref(&attributes), 0) })
        .map(drop)
}

/// linux/sched.h; the `libc` crate's constant is too narrow for it.
pub(super) const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// A child that [`fork`] started.
#[derive(Debug)]
pub(crate) struct ForkedChild {
    /// Pid in the caller's pid namespace.
    pub(crate) pid: libc::pid_t,
    /// Readable when it has ended.
    pub(crate) pidfd: OwnedFd,
}

/// `clone3(2)` in the manner of fork: the child runs `child` on a copy of this memory and exits
/// with its result.
///
/// Must only be called in a process with one thread (the spawner and the guest init are), because
/// only the calling thread exists in the child: a lock that another thread holds would stay locked.
pub(crate) fn fork(
    flags: c_int,
    cgroup: Option<BorrowedFd<'_>>,
    child: impl FnOnce() -> c_int,
) -> io::Result<ForkedChild> {
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
    // SAFETY: no stack is given and CLONE_VM is not set, so the child continues with a copy of this
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
    Ok(ForkedChild { pid, pidfd })
}

/// End of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChildEnd {
    /// Exit code.
    Code(i32),
    /// Signal that killed it.
    Signal(i32),
}

/// Waits for any child without blocking; returns `None` if no child has ended. `ECHILD` if there is
/// no child.
pub(crate) fn reap_any() -> io::Result<Option<(libc::pid_t, ChildEnd)>> {
    reap(-1, libc::WNOHANG)
}

/// Waits for any child, blocking. `ECHILD` if there is no child.
pub(crate) fn wait_any() -> io::Result<Option<(libc::pid_t, ChildEnd)>> {
    reap(-1, 0)
}

/// Waits for this child, which is known to have ended.
pub(crate) fn wait_pid(pid: libc::pid_t) -> io::Result<Option<(libc::pid_t, ChildEnd)>> {
    reap(pid, 0)
}

fn reap(pid: libc::pid_t, flags: c_int) -> io::Result<Option<(libc::pid_t, ChildEnd)>> {
    let mut status: c_int = 0;
    // __WALL also reaps children that a thread of this process made with another exit signal.
    // SAFETY: `status` is valid for writes.
    let pid = check_int(unsafe { libc::waitpid(pid, &mut status, flags | libc::__WALL) })?;
    if pid == 0 {
        return Ok(None);
    }
    let ended = if libc::WIFSIGNALED(status) {
        ChildEnd::Signal(libc::WTERMSIG(status))
    } else {
        ChildEnd::Code(libc::WEXITSTATUS(status))
    };
    Ok(Some((pid, ended)))
}

/// `kill(2)` of a process group of this pid namespace. `ESRCH` when it has no process.
pub(crate) fn signal_group(leader: libc::pid_t, signal: c_int) -> io::Result<()> {
    // 0 and 1 would be the caller's own group and every process.
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

/// Opens a descriptor for a child of this process that another process started.
pub(crate) fn adopted_child(pid: libc::pid_t) -> io::Result<ForkedChild> {
    // SAFETY: touches no memory.
    let pidfd = own(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    Ok(ForkedChild { pid, pidfd })
}

/// `prctl(2)` with integer arguments only.
pub(crate) fn prctl(option: c_int, arg: c_ulong) -> io::Result<()> {
    // SAFETY: the callers pass options whose argument is an integer; unused ones are zero as the
    // kernel demands.
    check_int(unsafe { libc::prctl(option, arg, 0 as c_ulong, 0 as c_ulong, 0 as c_ulong) })
        .map(drop)
}

/// Sets the name of this process as `ps` shows it; 15 bytes at most.
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

/// `umask(2)`; the previous mask is not needed.
pub(crate) fn umask(mask: u32) {
    // SAFETY: cannot fail and touches no memory.
    unsafe { libc::umask(mask) };
}

/// `execve(2)`. Returns only when it fails.
pub(crate) fn execve(path: &CStr, argv: &CStringArray, env: &CStringArray) -> io::Error {
    // SAFETY: `path` is NUL-terminated; both arrays are null-terminated arrays of NUL-terminated
    // strings by construction.
    unsafe { libc::execve(path.as_ptr(), argv.pointers.as_ptr(), env.pointers.as_ptr()) };
    io::Error::last_os_error()
}

/// A null-terminated array of NUL-terminated strings, as `execve` expects it.
#[derive(Debug)]
pub(crate) struct CStringArray {
    /// Keeps the strings alive; never changed after construction.
    _strings: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl CStringArray {
    pub(crate) fn new(strings: Vec<CString>) -> Self {
        // The heap blocks that the pointers name do not move with the vector that owns them.
        let mut pointers: Vec<*const c_char> = strings.iter().map(|s| s.as_ptr()).collect();
        pointers.push(ptr::null());
        CStringArray { _strings: strings, pointers }
    }
}
