/* What can be done to process 1. One line each: name and error, or ALLOWED. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static void report(const char *name, long result) {
  printf("%s %s\n", name, result < 0 ? strerrorname_np(errno) : "ALLOWED");
}

#define PROBE(name, call) do { errno = 0; report(name, (long)(call)); } while (0)

int main(void) {
  char byte = 0, path[256];
  struct iovec here = {&byte, 1}, there = {(void *)0x400000, 1};
  struct rlimit low = {16, 16};
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(0, &one);
  PROBE("attach", ptrace(PTRACE_ATTACH, 1, 0, 0));
  PROBE("seize", ptrace(PTRACE_SEIZE, 1, 0, 0));
  PROBE("stop", kill(1, SIGSTOP));
  PROBE("kill", kill(1, SIGKILL));
  PROBE("mem_read", open("/proc/1/mem", O_RDONLY));
  PROBE("mem_write", open("/proc/1/mem", O_RDWR));
  PROBE("environ", open("/proc/1/environ", O_RDONLY) < 0 ? -1 : read(open("/proc/1/environ", O_RDONLY), &byte, 1));
  PROBE("root", readlink("/proc/1/root", path, sizeof path));
  PROBE("cwd", open("/proc/1/cwd/.", O_RDONLY));
  PROBE("exe_write", open("/proc/1/exe", O_RDWR));
  PROBE("fd", open("/proc/1/fd", O_RDONLY));
  PROBE("ns_net", open("/proc/1/ns/net", O_RDONLY));
  PROBE("vm_readv", syscall(SYS_process_vm_readv, 1, &here, 1, &there, 1, 0));
  int handle = (int)syscall(SYS_pidfd_open, 1, 0);
  PROBE("getfd", syscall(SYS_pidfd_getfd, handle, 0, 0));
  PROBE("prlimit", prlimit(1, RLIMIT_NOFILE, &low, 0));
  PROBE("setpriority", setpriority(PRIO_PROCESS, 1, 19));
  PROBE("affinity", sched_setaffinity(1, sizeof one, &one));
  return 0;
}
