//! The fork server: a process in the control groups of a session that forks programs there.
//!
//! A process enters a group under a lock that is global to the host, and to move a process in
//! version 2 the kernel also waits for every processor (`cgroup_attach_lock` in
//! <https://elixir.bootlin.com/linux/v6.12/source/kernel/cgroup/cgroup.c>): programs that start in
//! one session would delay those of all others. A child is in the groups of its parent, so the fork
//! server enters them once, and no program has to.
//!
//! It waits under the id of the guest init, with the privileges and the policy with which a program
//! begins. Its forks are children of the guest init (`CLONE_PARENT`), which reaps them.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::program::{NOT_STARTED, ParkingOrder, ProgramContext};
use crate::sys::{self, FailurePage, FailurePages, session as sys_session};

/// The guest init's side of a fork server.
#[derive(Debug)]
pub(super) struct ForkServer {
    pub(super) pid: libc::pid_t,
    /// Page for the failure of a fork server that cannot be started.
    pub(super) note: FailurePage,
    pub(super) is_reaped: bool,
    socket: OwnedFd,
}

/// Answer of a fork server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForkAnswer {
    /// Pid of the process that waits at the socket.
    Forked(libc::pid_t),
    /// The error number of a failed fork.
    Failed(c_int),
    /// The fork server has ended and sends no more answers.
    Ended,
}

impl ForkServer {
    /// Starts a fork server. The first of a session starts in the version 2 group, if there is one.
    pub(super) fn start(
        context: &ProgramContext,
        first: Option<(ParkingOrder<'_>, Option<BorrowedFd<'_>>)>,
        pages: FailurePages,
        note: &FailurePage,
    ) -> io::Result<(libc::pid_t, OwnedFd)> {
        let (ours, theirs) = sys::message_pair()?;
        let pid = match first {
            Some((parking, group)) => {
                let child = || context.become_fork_server(parking, &theirs, note, pages);
                sys::fork(0, group, child)?.pid
            }
            None => sys_session::fork_plain(|| {
                context.become_fork_server(ParkingOrder::BY_INIT, &theirs, note, pages)
            })?,
        };
        Ok((pid, ours))
    }

    pub(super) fn new(pid: libc::pid_t, note: FailurePage, socket: OwnedFd) -> ForkServer {
        ForkServer { pid, note, is_reaped: false, socket }
    }

    /// Returns the socket, which is readable when an answer is available or the fork server has
    /// ended.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Requests a process that waits at `theirs` and records its failure in `note`. Answers come in
    /// the order of the requests.
    pub(super) fn request(&self, note: &FailurePage, theirs: &OwnedFd) -> io::Result<()> {
        sys::send(self.socket(), &note.place().to_le_bytes(), &[theirs.as_fd()])
    }

    /// Reads the next answer, which must be available.
    pub(super) fn answer(&self) -> ForkAnswer {
        let mut buf = [0; size_of::<c_int>()];
        match sys::receive(self.socket(), &mut buf) {
            Ok((n, _)) if n == buf.len() => match c_int::from_le_bytes(buf) {
                pid if pid > 0 => ForkAnswer::Forked(pid),
                errno => ForkAnswer::Failed(errno.saturating_neg()),
            },
            _ => ForkAnswer::Ended,
        }
    }
}

impl ProgramContext {
    /// Parks and forks until the guest init dies. Returns the exit code.
    fn become_fork_server(
        &self,
        parking: ParkingOrder<'_>,
        socket: &OwnedFd,
        note: &FailurePage,
        pages: FailurePages,
    ) -> c_int {
        let mut step = 0;
        if let Err(error) = self.park(parking, socket, &mut step) {
            note.set(step, error.raw_os_error().unwrap_or(libc::EINVAL));
            return NOT_STARTED;
        }
        match self.serve_forks(socket, pages) {
            Ok(()) => 0,
            Err(_) => 1,
        }
    }

    fn serve_forks(&self, socket: &OwnedFd, pages: FailurePages) -> io::Result<()> {
        let mut buf = [0; size_of::<u16>()];
        loop {
            let (n, mut fds) = sys::receive(socket.as_fd(), &mut buf)?;
            if n == 0 {
                return Ok(());
            }
            let note = pages.at(u16::from_le_bytes(buf)).filter(|_| n == buf.len());
            let (Some(note), Some(theirs)) = (note, fds.pop()) else {
                return Err(io::Error::from_raw_os_error(libc::EBADMSG));
            };
            let forked = sys_session::fork_sibling(|| {
                self.become_program(ParkingOrder::BY_FORK_SERVER, &theirs, &note)
            });
            let answer = forked.unwrap_or_else(|error| {
                error.raw_os_error().unwrap_or(libc::EAGAIN).saturating_neg()
            });
            sys::send(socket.as_fd(), &answer.to_le_bytes(), &[])?;
        }
    }
}
