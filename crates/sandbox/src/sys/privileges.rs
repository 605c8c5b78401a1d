//! System calls of identity and privilege: user ids, capabilities, resource limits.
//!
//! # References
//! - <https://man7.org/linux/man-pages/man7/capabilities.7.html>
//! - <https://man7.org/linux/man-pages/man7/user_namespaces.7.html>

use std::ffi::{c_int, c_uint, c_ulong, c_void};
use std::io;
use std::ptr;

use super::{check, check_int};

/// Effective user and group id.
pub(crate) fn effective_ids() -> (u32, u32) {
    // SAFETY: cannot fail and touches no memory.
    let uid = unsafe { libc::geteuid() };
    // SAFETY: likewise.
    let gid = unsafe { libc::getegid() };
    (uid, gid)
}

/// Gives up all supplementary groups.
pub(crate) fn clear_groups() -> io::Result<()> {
    // SAFETY: a length of zero reads no memory.
    check_int(unsafe { libc::setgroups(0, ptr::null()) }).map(drop)
}

/// Sets the real, effective and saved user id of this (only) thread. Uses the raw call, because
/// glibc's wrapper signals all other threads, of which there are none.
pub(crate) fn setresuid(uid: u32) -> io::Result<()> {
    // SAFETY: touches no memory.
    check(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) }).map(drop)
}

/// Sets the real, effective and saved group id.
pub(crate) fn setresgid(gid: u32) -> io::Result<()> {
    // SAFETY: touches no memory.
    check(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) }).map(drop)
}

/// Sets the user and group id for file system checks only.
pub(crate) fn setfsids(uid: u32, gid: u32) {
    // SAFETY: touches no memory. These calls return the earlier id and cannot report a failure,
    // which would show in the owner of files that the caller makes.
    unsafe { libc::syscall(libc::SYS_setfsgid, gid) };
    // SAFETY: likewise.
    unsafe { libc::syscall(libc::SYS_setfsuid, uid) };
}

/// Header and data of capget(2) and capset(2) in the kernel's third version.
#[repr(C)]
pub(super) struct CapHeader {
    version: u32,
    pid: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CapData {
    pub(super) effective: u32,
    pub(super) permitted: u32,
    pub(super) inheritable: u32,
}

pub(super) static CAP_HEADER: CapHeader = CapHeader { version: 0x2008_0522, pid: 0 };

/// Returns the permitted capabilities of this process.
pub(crate) fn capabilities() -> io::Result<u64> {
    let mut data = [CapData { effective: 0, permitted: 0, inheritable: 0 }; 2];
    // SAFETY: version 3 reads one header and writes two data elements, as passed here.
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
    // SAFETY: version 3 reads one header and two data elements, as passed here.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw const CAP_HEADER, data.as_ptr()) })
        .map(drop)
}

/// Makes exactly these capabilities permitted, effective and inheritable, and keeps them across
/// `execve` (they are made ambient).
pub(crate) fn keep_capabilities(mask: u64) -> io::Result<()> {
    let half = |bits: u64| u32::try_from(bits & 0xffff_ffff).unwrap_or(0);
    let data = [half(mask), half(mask >> 32)].map(|bits| CapData {
        effective: bits,
        permitted: bits,
        inheritable: bits,
    });
    // SAFETY: version 3 reads one header and two data elements, as passed here.
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

/// Makes these capabilities inheritable as far as they are permitted; the other sets do not change.
pub(crate) fn set_inheritable(mask: u64) -> io::Result<()> {
    let permitted = capabilities()?;
    let half = |bits: u64| u32::try_from(bits & 0xffff_ffff).unwrap_or(0);
    let data = [0, 32].map(|shift| CapData {
        effective: half(permitted >> shift),
        permitted: half(permitted >> shift),
        inheritable: half((permitted & mask) >> shift),
    });
    // SAFETY: version 3 reads one header and two data elements, as passed here.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw const CAP_HEADER, data.as_ptr()) })
        .map(drop)
}

/// `prlimit(2)` on this process: soft and hard limit alike.
pub(crate) fn set_limit(resource: c_uint, value: u64) -> io::Result<()> {
    let limit = libc::rlimit64 { rlim_cur: value, rlim_max: value };
    // SAFETY: reads one rlimit64; the old value is not requested.
    check(unsafe {
        libc::syscall(libc::SYS_prlimit64, 0, resource, &raw const limit, ptr::null::<c_void>())
    })
    .map(drop)
}

/// Sets this process's soft limit; the hard limit does not change.
pub(crate) fn set_soft_limit(resource: c_uint, value: u64) -> io::Result<()> {
    let limit = libc::rlimit64 { rlim_cur: value, rlim_max: hard_limit(resource)? };
    // SAFETY: reads one rlimit64; the old value is not requested.
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
