/* Asks for more of the CPU than others get. One line each: name and error, or ALLOWED. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

struct attributes {
  uint32_t size, policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime, deadline, period;
};

static void report(const char *name, long result) {
  printf("%s %s\n", name, result < 0 ? strerrorname_np(errno) : "ALLOWED");
}

#define PROBE(name, call) do { errno = 0; report(name, (long)(call)); } while (0)

int main(void) {
  struct sched_param first = {.sched_priority = 1};
  struct attributes deadline = {.size = sizeof deadline, .policy = 6, .runtime = 1000000, .deadline = 10000000, .period = 10000000};
  PROBE("fifo", sched_setscheduler(0, SCHED_FIFO, &first));
  PROBE("round_robin", sched_setscheduler(0, SCHED_RR, &first));
  PROBE("deadline", syscall(SYS_sched_setattr, 0, &deadline, 0));
  PROBE("nice", nice(-20) == -1 && errno ? -1 : 0);
  PROBE("setpriority", setpriority(PRIO_PROCESS, 0, -20));
  PROBE("ionice_rt", syscall(SYS_ioprio_set, 1, 0, (1 << 13) | 0));
  return 0;
}
