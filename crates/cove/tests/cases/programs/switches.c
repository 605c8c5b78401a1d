/* Opens files of /proc for writing and writes to them. One line each: path and error, or ALLOWED. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(void) {
  const char *files[] = {
      "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname",
      "/proc/sys/vm/overcommit_memory", "/proc/sys/net/ipv4/ip_forward",
      "/proc/sysrq-trigger", "/proc/self/oom_score_adj", "/proc/self/uid_map",
      "/proc/self/gid_map", "/proc/self/setgroups", "/proc/self/coredump_filter",
      "/proc/self/loginuid", "/proc/self/attr/current", "/proc/self/timerslack_ns",
      "/proc/self/clear_refs"};
  for (unsigned i = 0; i < sizeof files / sizeof *files; i++) {
    int file = open(files[i], O_WRONLY);
    long done = file < 0 ? -1 : write(file, "0", 1);
    printf("%s %s\n", files[i], done < 0 ? strerrorname_np(errno) : "ALLOWED");
  }
  return 0;
}
