/* Locks, leases and notifications on a file that every sandbox sees: a channel between tenants.
 * A read lock by itself tells nobody anything, as it excludes only writers, of which there are none;
 * asking who holds one does. One line each: name and error, or ALLOWED. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

static void report(const char *name, long result) {
  printf("%s %s\n", name, result < 0 ? strerrorname_np(errno) : "ALLOWED");
}

int main(void) {
  int file = open("/usr/bin/env", O_RDONLY), directory = open("/usr/bin", O_RDONLY);
  struct flock range = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
  report("flock", flock(file, LOCK_SH | LOCK_NB));
  report("flock_exclusive", flock(file, LOCK_EX | LOCK_NB));
  report("write_lock", (range.l_type = F_WRLCK, fcntl(file, F_SETLK, &range)));
  report("getlk", fcntl(file, F_GETLK, &range));
  report("getlk_high_bits", syscall(SYS_fcntl, file, 0x100000000UL | F_GETLK, &range));
  range.l_pid = 0;
  report("ofd_getlk", fcntl(file, F_OFD_GETLK, &range));
  report("lease", fcntl(file, F_SETLEASE, F_RDLCK));
  report("notify", fcntl(directory, F_NOTIFY, DN_ACCESS | DN_MULTISHOT));
  return 0;
}
