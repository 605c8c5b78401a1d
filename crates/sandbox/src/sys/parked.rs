//! A child that waits in its parent's own memory to become a program.
//!
//! A copy of a process costs more than all other steps of starting a program: the kernel copies the
//! page tables, both processes then fault in the pages that they use, and `execve` tears the copy
//! down at once. The child here is not a copy. It shares the memory of its parent, like a child of
//! vfork(2), and is parked ahead like any other. At every moment one of the two is blocked in a
//! system call and waits for the other, so that `errno` has one user at a time; and the child
//! allocates nothing.
//!
//! | time | parent | child |
//! |---|---|---|
//! | [`ParkingPlace::park`] | waits for a message, or for the end of the socket | prepares, says that it is parked |
//! | until the release | continues | waits for a message |
//! | [`ParkingPlace::release`] | waits for the end of the socket | becomes the program, which closes its end |
//!
//! # References
//! - <https://man7.org/linux/man-pages/man2/clone.2.html> (`CLONE_VM`, `clone3`)
//! - <https://man7.org/linux/man-pages/man2/vfork.2.html>

use std::ffi::{c_int, c_long, c_void};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use super::processes::{CLONE_INTO_CGROUP, ForkedChild};
use super::{
    MESSAGE_FDS_MAX, check_int, close_inherited, dup_from, kill_pidfd, message_pair, receive,
    receive_into, send,
};
use crate::spec::EXTRA_NUMBER_MAX;

/// Bytes of a child's stack with its guard. The functions that run on it have no large buffers.
const STACK_BYTES: usize = 128 << 10;
/// Bytes of the guard below a stack; a multiple of every page size in use.
const GUARD_BYTES: usize = 64 << 10;
/// Alignment of a stack where a function is called (System V ABI of AMD64, AAPCS64).
const STACK_ALIGNMENT: usize = 16;
/// Least number of a child's end of its socket: above all numbers that a program can ask for, so
/// that only `execve` or the child's exit closes it.
const SOCKET_NUMBER_MIN: RawFd = EXTRA_NUMBER_MAX.cast_signed() + 1;
/// Timeout for a child to block in its system call or exit; in effect no timeout.
const FOREVER: Duration = Duration::from_secs(1 << 30);

/// A place for one child at a time, which becomes a program by a plan `T`.
#[derive(Debug)]
pub(crate) struct ParkingPlace<T: 'static> {
    /// Lowest address of the stack's mapping, which stays as long as the process.
    stack: usize,
    /// The plan of a child that is released.
    plan: AtomicPtr<T>,
}

/// A child that is parked, or has failed to park.
#[derive(Debug)]
pub(crate) struct ParkedChild {
    pub(crate) child: ForkedChild,
    /// Connection for the message that releases the child; hung up when the child has ended.
    pub(crate) socket: OwnedFd,
    pub(crate) is_parked: bool,
}

/// Steps that a child runs in its parent's memory. They allocate nothing, so that the child can be
/// killed at any time without damage to the allocator. A step that fails returns the exit code.
pub(crate) struct ParkingSteps<P, N, T: 'static> {
    /// Runs before the child is parked.
    pub(crate) prepare: P,
    /// Runs when the child is released, with the descriptors of that message. Returns only on
    /// failure.
    pub(crate) become_program: BecomeProgram<T>,
    /// Runs if the message that releases the child does not arrive.
    pub(crate) not_released: N,
}

/// The last step of a child: from a plan and descriptors to `execve`.
type BecomeProgram<T> = fn(&T, &[Option<OwnedFd>]) -> c_int;

impl<T: 'static> ParkingPlace<T> {
    /// Creates a place, which lives as long as the process, since a child may use it for as long.
    pub(crate) fn new() -> io::Result<&'static ParkingPlace<T>> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: an anonymous mapping at an address of the kernel's choice.
        let memory = unsafe { libc::mmap(ptr::null_mut(), STACK_BYTES, protection, flags, -1, 0) };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the beginning of the mapping that was just made, which is not in use yet.
        check_int(unsafe { libc::mprotect(memory, GUARD_BYTES, libc::PROT_NONE) })?;
        let place = ParkingPlace {
            stack: memory.expose_provenance(),
            plan: AtomicPtr::new(ptr::null_mut()),
        };
        Ok(Box::leak(Box::new(place)))
    }

    /// Starts a child and waits until it is parked or has exited. `cgroup` is a version 2 group to
    /// start it in.
    ///
    /// The process must be single-threaded, and every earlier child of this place must have
    /// executed a program or ended.
    pub(crate) fn park<P, N>(
        &'static self,
        cgroup: Option<BorrowedFd<'_>>,
        steps: ParkingSteps<P, N, T>,
    ) -> io::Result<ParkedChild>
    where
        P: FnOnce() -> Result<(), c_int>,
        N: FnOnce(io::Error) -> c_int + 'static,
    {
        let (ours, low) = message_pair()?;
        let theirs = dup_from(low.as_fd(), SOCKET_NUMBER_MIN)?;
        drop(low);
        let (our_number, socket) = (ours.as_raw_fd(), theirs.as_raw_fd());
        let ParkingSteps { prepare, become_program, not_released } = steps;
        let child = move || {
            // The child's copy of our end would keep it from noticing that this process has died.
            let number = our_number.cast_unsigned();
            // SAFETY: the child has its own descriptor table, where this one is open and has no
            // other owner.
            let socket = unsafe { BorrowedFd::borrow_raw(socket) };
            let parked = close_inherited(number, number).map_err(|_| libc::EXIT_FAILURE);
            match parked.and_then(|()| prepare()) {
                Ok(()) => self.wait_and_become(socket, become_program, not_released),
                Err(code) => code,
            }
        };
        // SAFETY: this process waits in `receive` until the child waits itself, or has exited; what
        // the child has borrowed until then lives until this function returns.
        let child = unsafe { self.fork(cgroup, child) }?;
        drop(theirs);
        let received = receive(ours.as_fd(), &mut [0u8; 1]);
        let is_parked = received.as_ref().is_ok_and(|(n, _)| *n > 0);
        if received.is_err() {
            // Ensures that the child no longer runs, whatever it was doing.
            end(&child, ours.as_fd());
        }
        received.map(|_| ParkedChild { child, socket: ours, is_parked })
    }

    /// The child's wait for its plan, and all later steps.
    fn wait_and_become(
        &self,
        socket: BorrowedFd<'_>,
        become_program: BecomeProgram<T>,
        not_released: impl FnOnce(io::Error) -> c_int,
    ) -> c_int {
        let mut fds = [const { None::<OwnedFd> }; MESSAGE_FDS_MAX];
        let told = send(socket, &[0], &[]);
        let released = told.and_then(|()| receive_into(socket, &mut [0u8; 1], &mut fds));
        let count = match released {
            Ok((1.., count)) => count,
            Ok((0, _)) => return not_released(io::ErrorKind::BrokenPipe.into()),
            Err(error) => return not_released(error),
        };
        let plan = self.plan.load(Ordering::Acquire);
        // SAFETY: `release` has put it there, and waits with it until this process has executed a
        // program or exited.
        match unsafe { plan.as_ref() } {
            Some(plan) => become_program(plan, fds.get(..count).unwrap_or_default()),
            None => not_released(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Makes the parked child the program of a plan, with these descriptors. Waits until it has
    /// executed the program or exited; kills it if that takes longer than `timeout`, or when
    /// `other` is hung up.
    pub(crate) fn release(
        &self,
        parked: &ForkedChild,
        socket: BorrowedFd<'_>,
        plan: &T,
        fds: &[BorrowedFd<'_>],
        other: BorrowedFd<'_>,
        timeout: Duration,
    ) -> io::Result<()> {
        self.plan.store(ptr::from_ref(plan).cast_mut(), Ordering::Release);
        let sent = send(socket, &[0], fds);
        if sent.is_err() || !wait_until_closed(&[socket, other], timeout) {
            end(parked, socket);
        }
        self.plan.store(ptr::null_mut(), Ordering::Release);
        sent
    }

    /// Starts a child in this memory, on the stack of this place.
    ///
    /// # Safety
    /// The child allocates nothing. It may use memory that this process changes, and `errno`, only
    /// while this process waits for it in a system call, and this process continues only when the
    /// child waits likewise, has executed a program or has exited. What `child` borrows must live
    /// until then. No other child uses the stack.
    unsafe fn fork<F: FnOnce() -> c_int>(
        &self,
        cgroup: Option<BorrowedFd<'_>>,
        child: F,
    ) -> io::Result<ForkedChild> {
        extern "C" fn run<F: FnOnce() -> c_int>(child: *mut F) -> ! {
            // SAFETY: written there before the clone, for this read alone.
            let child = unsafe { child.read() };
            let code = child();
            // SAFETY: ends this process without running destructors, which are its parent's to run.
            unsafe { libc::_exit(code) }
        }
        let entry: extern "C" fn(*mut F) -> ! = run::<F>;
        let room = mem::size_of::<F>().next_multiple_of(STACK_ALIGNMENT);
        debug_assert!(room < GUARD_BYTES && mem::align_of::<F>() <= STACK_ALIGNMENT);
        let top = self.stack + STACK_BYTES - room;
        let argument = ptr::with_exposed_provenance_mut::<F>(top);
        // SAFETY: within the mapping, above its guard, aligned; the caller guarantees exclusive
        // use.
        unsafe { argument.write(child) };
        let mut pidfd: RawFd = -1;
        // SAFETY: all-zero is a valid clone_args.
        let mut args: libc::clone_args = unsafe { mem::zeroed() };
        args.flags = (libc::CLONE_VM | libc::CLONE_PIDFD).cast_unsigned().into();
        args.pidfd = ptr::from_mut(&mut pidfd) as u64;
        args.exit_signal = libc::SIGCHLD.cast_unsigned().into();
        args.stack = (self.stack + GUARD_BYTES) as u64;
        args.stack_size = (top - self.stack - GUARD_BYTES) as u64;
        if let Some(cgroup) = cgroup {
            args.flags |= CLONE_INTO_CGROUP;
            args.cgroup = u64::from(cgroup.as_raw_fd().cast_unsigned());
        }
        // SAFETY: `args` are valid and outlive the call; the child begins on its own stack, which
        // ends aligned, calls `run` and does not return.
        let outcome = unsafe { clone3_onto(&mut args, entry as *const c_void, argument.cast()) };
        if outcome < 0 {
            // SAFETY: there is no child, so the argument is still this process's.
            drop(unsafe { argument.read() });
            let errno = i32::try_from(-outcome).unwrap_or(libc::EINVAL);
            return Err(io::Error::from_raw_os_error(errno));
        }
        // SAFETY: CLONE_PIDFD made the kernel store a new descriptor there.
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
        let pid = libc::pid_t::try_from(outcome).unwrap_or(libc::pid_t::MAX);
        Ok(ForkedChild { pid, pidfd })
    }
}

/// Kills a child, and waits until it no longer uses this memory.
fn end(child: &ForkedChild, socket: BorrowedFd<'_>) {
    // A child that is dead already needs no signal.
    let _dead = kill_pidfd(child.pidfd.as_fd());
    wait_until_closed(&[socket], FOREVER);
}

/// Waits until the other end of the first of these is closed, one of the others is hung up, or the
/// timeout expires; returns whether the first was closed.
///
/// Allocates nothing and reads no `errno`, which could be the child's.
fn wait_until_closed(fds: &[BorrowedFd<'_>], timeout: Duration) -> bool {
    let mut polled = [libc::pollfd { fd: -1, events: 0, revents: 0 }; 2];
    for (place, fd) in polled.iter_mut().zip(fds) {
        place.fd = fd.as_raw_fd();
    }
    let mut rest = libc::timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    loop {
        // Uses the system call and not the C library's function: the kernel updates `rest` with the
        // remaining time when a signal interrupts the call, the only way in which it can fail here.
        // SAFETY: an array with its length, a valid time, and no mask.
        let ready = unsafe {
            libc::syscall(
                libc::SYS_ppoll,
                polled.as_mut_ptr(),
                polled.len(),
                &raw mut rest,
                ptr::null::<c_void>(),
                0,
            )
        };
        match ready {
            0 => return false,
            1.. => return polled[0].revents != 0,
            _ => {}
        }
    }
}

/// `clone3` whose child calls `entry` with `argument` on the stack of `args`, and never returns.
/// Returns the kernel's result: a pid, or a negated errno.
///
/// In assembly, because the C library does not export its own function for this.
///
/// # Safety
/// `args` are valid, with a stack that ends aligned to 16; `entry` is an `extern "C"` function of
/// one pointer that does not return.
unsafe fn clone3_onto(
    args: &mut libc::clone_args,
    entry: *const c_void,
    argument: *mut c_void,
) -> c_long {
    let outcome: c_long;
    // SAFETY: the function's own conditions. Only the child continues with the call, on its stack.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp", // the outermost frame
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 => outcome,
            in("rdi") ptr::from_mut(args),
            in("rsi") mem::size_of::<libc::clone_args>(),
            in("r12") argument,
            in("r13") entry,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    // SAFETY: likewise.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x29, xzr", // the outermost frame
            "mov x0, x20",
            "blr x21",
            "brk #1",
            "2:",
            inlateout("x0") ptr::from_mut(args) => outcome,
            in("x1") mem::size_of::<libc::clone_args>(),
            in("x8") libc::SYS_clone3,
            in("x20") argument,
            in("x21") entry,
        );
    }
    outcome
}

#[cfg(test)]
mod tests {
    //! Other threads run meanwhile, which does no harm: a child allocates nothing, and its `errno`
    //! is that of the thread that waits for it. But a child has copies of all descriptors, so that
    //! only one test at a time may have children.

    use parking_lot::Mutex;

    use super::super::{ChildEnd, pipe, wait_pid};
    use super::*;

    static ONE_TEST: Mutex<()> = Mutex::new(());

    /// A plan: the code that the child exits with, once it has written to its descriptor.
    #[derive(Debug)]
    struct Plan(c_int);

    fn write_and_exit(plan: &Plan, fds: &[Option<OwnedFd>]) -> c_int {
        for fd in fds.iter().flatten() {
            if super::super::write_all(fd.as_fd(), b"x").is_err() {
                return 99;
            }
        }
        plan.0
    }

    fn stay(_: &Plan, _: &[Option<OwnedFd>]) -> c_int {
        loop {
            // SAFETY: waits for a signal and touches no memory.
            unsafe { libc::pause() };
        }
    }

    fn park(
        place: &'static ParkingPlace<Plan>,
        become_program: BecomeProgram<Plan>,
    ) -> ParkedChild {
        let steps =
            ParkingSteps { prepare: || Ok(()), become_program, not_released: |_: io::Error| 5 };
        place.park(None, steps).unwrap()
    }

    fn end_of(parked: &ParkedChild) -> ChildEnd {
        wait_pid(parked.child.pid).unwrap().unwrap().1
    }

    #[test]
    fn a_child_acts_by_the_plan_that_it_is_given_and_its_place_serves_again() {
        let _one = ONE_TEST.lock();
        let place = ParkingPlace::new().unwrap();
        let (alive, _other_end) = pipe().unwrap();
        for code in [3, 4] {
            let parked = park(place, write_and_exit);
            assert!(parked.is_parked);
            let (read, write) = pipe().unwrap();
            let (plan, fds) = (Plan(code), [write.as_fd(), write.as_fd()]);
            let socket = parked.socket.as_fd();
            place.release(&parked.child, socket, &plan, &fds, alive.as_fd(), FOREVER).unwrap();
            drop(write);
            assert_eq!(end_of(&parked), ChildEnd::Code(code));
            assert_eq!(io::read_to_string(std::fs::File::from(read)).unwrap(), "xx");
        }
    }

    #[test]
    fn a_child_that_cannot_prepare_is_not_parked() {
        let _one = ONE_TEST.lock();
        let place = ParkingPlace::<Plan>::new().unwrap();
        let steps = ParkingSteps {
            prepare: || Err(7),
            become_program: write_and_exit,
            not_released: |_: io::Error| 5,
        };
        let parked = place.park(None, steps).unwrap();
        assert_eq!((parked.is_parked, end_of(&parked)), (false, ChildEnd::Code(7)));
    }

    #[test]
    fn a_child_whose_parent_gives_it_up_ends() {
        let _one = ONE_TEST.lock();
        let ParkedChild { child, socket, .. } = park(ParkingPlace::new().unwrap(), write_and_exit);
        drop(socket);
        assert_eq!(wait_pid(child.pid).unwrap().unwrap().1, ChildEnd::Code(5));
    }

    #[test]
    fn a_child_that_does_not_become_a_program_is_ended() {
        let _one = ONE_TEST.lock();
        let (alive, other_end) = pipe().unwrap();
        let mut other_end = Some(other_end);
        for timeout in [Duration::from_millis(1), FOREVER] {
            if timeout == FOREVER {
                // The process that must stay alive has ended.
                other_end.take();
            }
            let place = ParkingPlace::new().unwrap();
            let parked = park(place, stay);
            let socket = parked.socket.as_fd();
            place.release(&parked.child, socket, &Plan(0), &[], alive.as_fd(), timeout).unwrap();
            assert_eq!(end_of(&parked), ChildEnd::Signal(libc::SIGKILL));
        }
    }
}
