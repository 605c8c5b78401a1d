//! System calls of sockets that carry messages with descriptors, and polling.
//!
//! # References
//! - <https://man7.org/linux/man-pages/man7/unix.7.html>

use std::ffi::{c_int, c_uint};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use super::{check_int, set_nonblocking};

/// Maximum number of descriptors in one message; the kernel's own maximum is 253 (`SCM_MAX_FD`).
pub(crate) const MESSAGE_FDS_MAX: usize = 72;

/// Creates a pair of connected sockets that keep message boundaries, close-on-exec.
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
    // SAFETY: the call succeeded; this descriptor has no other owner.
    let left = unsafe { OwnedFd::from_raw_fd(fds[0]) };
    // SAFETY: likewise.
    let right = unsafe { OwnedFd::from_raw_fd(fds[1]) };
    Ok((left, right))
}

/// Room for the descriptors of one message, aligned as the kernel requires.
#[repr(C, align(8))]
struct ControlBuffer([u8; 24 + 4 * MESSAGE_FDS_MAX]);

/// Sends one message with descriptors. Allocates nothing.
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
        let payload_bytes = c_uint::try_from(mem::size_of::<RawFd>() * fds.len()).unwrap_or(0);
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
        let data = unsafe { libc::CMSG_DATA(header) }.cast::<RawFd>();
        for (at, fd) in fds.iter().enumerate() {
            // SAFETY: `control` has room for MESSAGE_FDS_MAX descriptors after the header, and
            // there are no more than that.
            let place = unsafe { data.add(at) };
            // SAFETY: likewise, possibly unaligned.
            unsafe { place.write_unaligned(fd.as_raw_fd()) };
        }
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

/// Receives one message with its descriptors; zero bytes at end of file. `EMSGSIZE` if the buffer
/// is too small for the bytes, or this process has too few free descriptors: then the message is
/// lost.
pub(crate) fn receive(socket: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut fds = Vec::new();
    match receive_message(socket, buf, |fd| fds.push(fd))? {
        (n, true) => Ok((n, fds)),
        (_, false) => Err(io::Error::from_raw_os_error(libc::EMSGSIZE)),
    }
}

/// Like [`receive`]; but if this process has too few free descriptors, the message comes without
/// any, so that a lack of descriptors does not cost the connection.
pub(crate) fn receive_what_fits(
    socket: BorrowedFd<'_>,
    buf: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut fds = Vec::new();
    let (n, is_whole) = receive_message(socket, buf, |fd| fds.push(fd))?;
    if !is_whole {
        fds.clear();
    }
    Ok((n, fds))
}

/// Like [`receive`], but allocates nothing: the descriptors are stored in the caller's slice, and
/// their number is returned. `EMSGSIZE` also if that slice is too small.
pub(crate) fn receive_into(
    socket: BorrowedFd<'_>,
    buf: &mut [u8],
    place: &mut [Option<OwnedFd>],
) -> io::Result<(usize, usize)> {
    let mut count = 0;
    let (n, is_whole) = receive_message(socket, buf, |fd| {
        if let Some(free) = place.get_mut(count) {
            *free = Some(fd);
        }
        count += 1;
    })?;
    if !is_whole || count > place.len() {
        return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
    }
    Ok((n, count))
}

/// Receives one message; returns whether all of its descriptors were received.
fn receive_message(
    socket: BorrowedFd<'_>,
    buf: &mut [u8],
    mut take: impl FnMut(OwnedFd),
) -> io::Result<(usize, bool)> {
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
                take(unsafe { OwnedFd::from_raw_fd(fd) });
            }
        }
        // SAFETY: walks within `control` as `message` describes it.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    if message.msg_flags & libc::MSG_TRUNC != 0 {
        return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
    }
    Ok((n, message.msg_flags & libc::MSG_CTRUNC == 0))
}

/// Registers a descriptor with the async runtime; it becomes non-blocking.
pub(crate) fn watch(fd: OwnedFd) -> io::Result<tokio::io::unix::AsyncFd<OwnedFd>> {
    set_nonblocking(std::os::fd::AsFd::as_fd(&fd))?;
    // SAFETY: an OwnedFd names the same open descriptor for as long as it lives, and the AsyncFd
    // owns it until it has been taken from the runtime's poll set.
    unsafe { tokio::io::unix::AsyncFd::register(fd) }.map_err(io::Error::from)
}

/// Waits until one of `fds` is readable or hung up, or the timeout expires. Returns for each
/// whether it is ready.
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
