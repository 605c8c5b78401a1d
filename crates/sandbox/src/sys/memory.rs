//! How the C library's allocator gives memory back.

use libc::c_int;

/// Smallest block that is mapped by itself and unmapped when it is freed, in bytes.
const MAPPED_BYTES_MIN: c_int = 128 << 10;

/// Makes the allocator give large blocks back to the kernel as soon as they are freed.
///
/// glibc begins so, but raises the threshold to the largest block that was freed, up to 32 MiB
/// (`mallopt(3)`, <https://man7.org/linux/man-pages/man3/mallopt.3.html>). After a few large
/// answers such blocks come from heaps, whose free memory stays with the process.
#[cfg(target_env = "gnu")]
pub fn return_large_blocks() {
    // SAFETY: `mallopt` takes two numbers and changes a parameter of the allocator under its lock;
    // the option exists in every glibc, and one that it does not know changes nothing.
    let changed = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN) };
    debug_assert_eq!(changed, 1, "mallopt refuses the threshold");
}

/// Other C libraries give large blocks back by themselves.
#[cfg(not(target_env = "gnu"))]
pub fn return_large_blocks() {}
