/* Locks, leases and notifications on a file that every sandbox sees: a channel between tenants.
 * One line each: name and error, or ALLOWED. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static void report(const char *name, long result) {
  printf("%s %s\n", name, result < 0 ? strerrorname_np(errno) : "ALLOWED");
}

int main(void) {
  int file = open("/usr/bin/env", O_RDONLY), directory = open("/usr/bin", O_RDONLY);
  struct flock range = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
  report("flock", flock(file, LOCK_SH | LOCK_NB));
  report("flock_exclusive", flock(file, LOCK_EX | LOCK_NB));
  report("setlk", fcntl(file, F_SETLK, &range));
  range.l_pid = 0;
  report("ofd_setlk", fcntl(file, F_OFD_SETLK, &range));
  report("lease", fcntl(file, F_SETLEASE, F_RDLCK));
  report("notify", fcntl(directory, F_NOTIFY, DN_ACCESS | DN_MULTISHOT));
  return 0;
}
