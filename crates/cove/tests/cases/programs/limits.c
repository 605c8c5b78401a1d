/* Tries to raise its own resource limits. One line each: name and error, SAME when there is nothing
 * to raise, or ALLOWED. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static void raise_limit(const char *name, int which) {
  struct rlimit limit;
  getrlimit(which, &limit);
  if (limit.rlim_max == RLIM_INFINITY) {
    printf("%s SAME\n", name);
    return;
  }
  limit.rlim_max += 1;
  limit.rlim_cur = limit.rlim_max;
  printf("%s %s\n", name, prlimit(0, which, &limit, 0) < 0 ? strerrorname_np(errno) : "ALLOWED");
}

int main(void) {
  raise_limit("nofile", RLIMIT_NOFILE);
  raise_limit("nproc", RLIMIT_NPROC);
  raise_limit("cpu", RLIMIT_CPU);
  raise_limit("fsize", RLIMIT_FSIZE);
  raise_limit("core", RLIMIT_CORE);
  raise_limit("memlock", RLIMIT_MEMLOCK);
  raise_limit("rtprio", RLIMIT_RTPRIO);
  raise_limit("nice", RLIMIT_NICE);
  raise_limit("msgqueue", RLIMIT_MSGQUEUE);
  return 0;
}
