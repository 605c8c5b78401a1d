//! System calls mainly for sessions: a plain fork, signals to one process, and the loopback of a
//! network namespace.
//!
//! # References
//! - <https://man7.org/linux/man-pages/man2/fork.2.html>
//! - <https://man7.org/linux/man-pages/man7/netdevice.7.html>

use std::ffi::{c_char, c_int, c_short};
use std::io;
use std::mem;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use super::{check, check_int, own};

/// `clone(2)` in the manner of fork, by the older call, which the policy of programs allows; the
/// child runs `child` and exits with its result. Returns its pid.
///
/// Must only be called in a single-threaded process, like [`super::fork`].
pub(crate) fn fork_plain(child: impl FnOnce() -> c_int) -> io::Result<libc::pid_t> {
    clone_plain(0, child)
}

/// Forks a child of the caller's parent, which reaps it (`CLONE_PARENT`).
pub(crate) fn fork_sibling(child: impl FnOnce() -> c_int) -> io::Result<libc::pid_t> {
    clone_plain(libc::CLONE_PARENT, child)
}

fn clone_plain(flags: c_int, child: impl FnOnce() -> c_int) -> io::Result<libc::pid_t> {
    // SAFETY: neither a stack nor CLONE_VM is given, so the child continues with a copy of this
    // process's memory; the kernel ignores the pointers without their flags.
    let pid = check(unsafe {
        libc::syscall(
            libc::SYS_clone,
            flags | libc::SIGCHLD,
            ptr::null::<u8>(),
            ptr::null::<u8>(),
            ptr::null::<u8>(),
            ptr::null::<u8>(),
        )
    })?;
    if pid == 0 {
        let code = child();
        // SAFETY: ends this process without running destructors of the copied parent.
        unsafe { libc::_exit(code) }
    }
    libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ERANGE))
}

/// `kill(2)` of one process of this pid namespace. `ESRCH` for pid 1 and for a pid without a
/// process.
pub(crate) fn signal_one(pid: libc::pid_t, signal: c_int) -> io::Result<()> {
    if pid <= 1 {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    // SAFETY: touches no memory.
    check_int(unsafe { libc::kill(pid, signal) }).map(drop)
}

/// `kill(-1, signal)`: all processes of this pid namespace except the caller, which is its pid 1.
/// Succeeds if there are none.
pub(crate) fn signal_all_others(signal: c_int) -> io::Result<()> {
    // Outside a pid namespace of our own this would signal every process of the host.
    // SAFETY: touches no memory.
    if unsafe { libc::getpid() } != 1 {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    // SAFETY: touches no memory.
    match check_int(unsafe { libc::kill(-1, signal) }) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        sent => sent.map(drop),
    }
}

/// `shutdown(2)` of both directions: the peer sees the end of file at once.
pub(crate) fn hang_up(socket: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: touches no memory.
    check_int(unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) }).map(drop)
}

/// Creates a non-blocking TCP socket of this network namespace.
fn tcp() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: touches no memory; a new descriptor is returned.
    own(unsafe { libc::socket(libc::AF_INET, kind, 0) }.into())
}

fn loopback(port: u16) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::sa_family_t::try_from(libc::AF_INET).unwrap_or_default(),
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(Ipv4Addr::LOCALHOST).to_be() },
        sin_zero: [0; 8],
    }
}

/// Returns the size of a value in the type that socket calls require.
fn bytes_of<T>(_value: &T) -> libc::socklen_t {
    libc::socklen_t::try_from(mem::size_of::<T>()).unwrap_or_default()
}

/// Begins a connection to this port of the loopback. Never waits: whether the port has a listener
/// is known when the socket is writable.
pub(crate) fn connect_loopback(port: u16) -> io::Result<OwnedFd> {
    let socket = tcp()?;
    let address = loopback(port);
    // SAFETY: the address has the size that is passed with it.
    let rc = unsafe {
        libc::connect(socket.as_raw_fd(), ptr::from_ref(&address).cast(), bytes_of(&address))
    };
    match check_int(rc) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(socket),
    }
}

/// Creates a socket that listens on this port of the loopback, or on a free one if it is 0.
pub(crate) fn listen_loopback(port: u16, backlog: c_int) -> io::Result<OwnedFd> {
    let socket = tcp()?;
    let on: c_int = 1;
    // SAFETY: reads one int, whose size is passed with it.
    check_int(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_REUSEADDR,
            ptr::from_ref(&on).cast(),
            bytes_of(&on),
        )
    })?;
    let address = loopback(port);
    // SAFETY: the address has the size that is passed with it.
    check_int(unsafe {
        libc::bind(socket.as_raw_fd(), ptr::from_ref(&address).cast(), bytes_of(&address))
    })?;
    // SAFETY: touches no memory.
    check_int(unsafe { libc::listen(socket.as_raw_fd(), backlog) })?;
    Ok(socket)
}

/// Enables the loopback of this network namespace.
pub(crate) fn raise_loopback() -> io::Result<()> {
    let socket = tcp()?;
    // SAFETY: all-zero is a valid ifreq.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(*b"lo") {
        *to = c_char::from_ne_bytes([from]);
    }
    let flags = c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING);
    request.ifr_ifru.ifru_flags = flags.map_err(io::Error::other)?;
    // SAFETY: the call reads one ifreq.
    check_int(unsafe {
        libc::ioctl(socket.as_fd().as_raw_fd(), libc::SIOCSIFFLAGS, ptr::from_ref(&request))
    })
    .map(drop)
}
