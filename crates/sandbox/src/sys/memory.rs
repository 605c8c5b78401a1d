//! System calls of memory: shared mappings, and the C library's allocator.
//!
//! # References
//! - <https://man7.org/linux/man-pages/man2/memfd_create.2.html>

use std::ffi::{CStr, c_int};
use std::hint::black_box;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use super::{check_int, own, write_all};

/// Smallest block with a mapping of its own, which is unmapped when it is freed, in bytes.
const MAPPED_BYTES_MIN: c_int = 128 << 10;

/// Makes the allocator return large blocks to the kernel as soon as they are freed.
///
/// glibc does so at first, but raises the threshold to the largest block that was freed, up to 32
/// MiB (`mallopt(3)`, <https://man7.org/linux/man-pages/man3/mallopt.3.html>). After a few large
/// answers such blocks come from heaps, whose free memory stays with the process.
#[cfg(target_env = "gnu")]
pub fn return_large_blocks() {
    // SAFETY: `mallopt` takes two numbers and changes a parameter of the allocator under its lock;
    // the option exists in every glibc, and an unknown option changes nothing.
    let changed = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN) };
    debug_assert_eq!(changed, 1, "mallopt refuses the threshold");
}

/// Does nothing: other C libraries return large blocks without this.
#[cfg(not(target_env = "gnu"))]
pub fn return_large_blocks() {}

/// Allocates the free blocks of the heap that was in use so far, so that later allocations are
/// contiguous.
///
/// For a process that forks repeatedly: its start leaves free blocks on many pages, the allocator
/// reuses them first, and each page that a child writes to is copied. Only for a single-threaded
/// process; its free blocks stay allocated until it ends.
pub(crate) fn leave_used_heap() {
    /// Larger than any block that the start frees, and smaller than a block with its own mapping.
    const FRESH_BYTES: usize = 96 << 10;
    /// Maximum number of allocated blocks: a heap of megabytes may stay as it is.
    const BLOCKS_MAX: usize = 100_000;
    // SAFETY: any size may be requested.
    let fresh = black_box(unsafe { libc::malloc(FRESH_BYTES) });
    if fresh.is_null() {
        return;
    }
    let mut taken = 0;
    // The largest sizes first, and each size for which the allocator keeps free lists.
    for size in (16..1024).step_by(16).chain((1..=16).map(|n| n << 10)).rev() {
        while taken < BLOCKS_MAX {
            // SAFETY: likewise. Blocks below the fresh one are never freed, which is the purpose.
            let block = black_box(unsafe { libc::malloc(size) });
            if block >= fresh || block.is_null() {
                // SAFETY: allocated above, and not used.
                unsafe { libc::free(block) };
                break;
            }
            taken += 1;
        }
    }
    // SAFETY: allocated above, and not used.
    unsafe { libc::free(fresh) };
}

/// Creates an anonymous file with this content, sealed against change.
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

/// Replaces the memory that the loader has relocated and made read-only (`PT_GNU_RELRO`) by a
/// mapping of a file. In a position-independent executable, that memory is a private page for each
/// 4 KiB of pointers, and every fork copies their page table entries, twice for each sandbox; pages
/// of a file are looked up again on demand.
///
/// Does nothing if the executable has no such memory. Only for a single-threaded process.
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

/// Page for the failure of a child that could not start its program.
///
/// One page of memory that both processes share. The child writes before it exits; the parent reads
/// after it has waited for the child, so reads and writes never overlap. A copy of this value
/// refers to the same memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailurePage {
    cells: &'static [AtomicI32; 2],
    place: u16,
}

/// A page with slots for the notes of many children, at the same address in each of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailurePages(&'static [[AtomicI32; 2]; FailurePages::PLACES]);

impl FailurePages {
    /// Number of notes in a page.
    pub(crate) const PLACES: usize = 4096 / mem::size_of::<[AtomicI32; 2]>();

    /// Creates a page, which lives as long as the process.
    pub(crate) fn new() -> io::Result<Self> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: an anonymous mapping at an address of the kernel's choice.
        let page = unsafe { libc::mmap(ptr::null_mut(), 4096, protection, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the page is zeroed, aligned, as large as these words and never unmapped.
        Ok(FailurePages(unsafe { &*page.cast::<[[AtomicI32; 2]; Self::PLACES]>() }))
    }

    /// Returns the note at an index, which may have only one user at a time; None if the index is
    /// out of range.
    pub(crate) fn at(self, place: u16) -> Option<FailurePage> {
        Some(FailurePage { cells: self.0.get(usize::from(place))?, place })
    }
}

impl FailurePage {
    /// Creates a page.
    pub(crate) fn new() -> io::Result<Self> {
        FailurePages::new()?.at(0).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
    }

    /// Returns its index in its page.
    pub(crate) fn place(&self) -> u16 {
        self.place
    }

    /// Records a failed step and its errno.
    pub(crate) fn set(&self, step: i32, errno: i32) {
        self.cells[1].store(errno, Ordering::Relaxed);
        self.cells[0].store(step, Ordering::Release);
    }

    /// Takes the recorded failure, if there is one.
    pub(crate) fn take(&self) -> Option<(i32, i32)> {
        match self.cells[0].swap(0, Ordering::AcqRel) {
            0 => None,
            step => Some((step, self.cells[1].load(Ordering::Relaxed))),
        }
    }
}
