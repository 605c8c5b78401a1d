/* What ordinary programs and language runtimes need. One line each: name and OK, or the error. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void report(const char *name, int good) {
  printf("%s %s\n", name, good ? "OK" : errno ? strerrorname_np(errno) : "WRONG");
}

#define PROBE(name, condition) do { errno = 0; int good = !!(condition); report(name, good); } while (0)

static int child_ended(pid_t child) {
  int status;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static int forked(void) {
  pid_t child = fork();
  if (child == 0) _exit(0);
  return child_ended(child);
}

static int vforked(void) {
  pid_t child = vfork();
  if (child == 0) { execl("/bin/true", "true", (char *)0); _exit(1); }
  return child_ended(child);
}

static int spawned(void) {
  pid_t child;
  char *arguments[] = {"true", 0};
  return posix_spawn(&child, "/bin/true", 0, 0, arguments, environ) == 0 && child_ended(child);
}

static void *thread(void *value) { return value; }

static int threaded(void) {
  pthread_t one;
  void *value = 0;
  return pthread_create(&one, 0, thread, &value) == 0 && pthread_join(one, &value) == 0 && value;
}

static int listening(void) {
  struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "/tmp/socket"};
  int server = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
  return bind(server, (struct sockaddr *)&name, sizeof name) == 0 && listen(server, 1) == 0 &&
         connect(client, (struct sockaddr *)&name, sizeof name) == 0;
}

static int waited(void) {
  siginfo_t information;
  pid_t child = fork();
  if (child == 0) _exit(0);
  return waitid(P_PID, (id_t)child, &information, WEXITED) == 0;
}

static int copied(void) {
  int from = open("/usr/bin/env", O_RDONLY), to = open("copy", O_CREAT | O_RDWR, 0600);
  return write(to, "abc", 3) == 3 && lseek(to, 0, SEEK_SET) == 0 && from >= 0 &&
         copy_file_range(to, 0, open("copy2", O_CREAT | O_RDWR, 0600), 0, 3, 0) == 3;
}

static int sent(void) {
  int from = open("/usr/bin/env", O_RDONLY), to = open("sent", O_CREAT | O_RDWR, 0600);
  return sendfile(to, from, 0, 100) == 100;
}

int main(void) {
  setvbuf(stdout, 0, _IONBF, 0);
  int pair[2];
  char bytes[8];
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  struct statx about;
  struct rlimit files = {32, 32};
  stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
  PROBE("fork", forked());
  PROBE("pthread", threaded());
  PROBE("vfork_exec", vforked());
  PROBE("posix_spawn", spawned());
  PROBE("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  PROBE("unix_listener", listening());
  PROBE("pipe2", pipe2(pair, O_CLOEXEC) == 0);
  PROBE("eventfd", eventfd(0, 0) >= 0);
  PROBE("timerfd", timerfd_create(CLOCK_MONOTONIC, 0) >= 0);
  PROBE("epoll", epoll_create1(0) >= 0);
  PROBE("signalfd", signalfd(-1, &set, 0) >= 0);
  PROBE("memfd", memfd_create("x", 0) >= 0);
  PROBE("mmap_shared", mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
  void *area = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  PROBE("mprotect_exec", mprotect(area, 4096, PROT_READ | PROT_EXEC) == 0);
  PROBE("futex", syscall(SYS_futex, &files, 1, 1, 0, 0, 0) >= 0);
  PROBE("getrandom", getrandom(bytes, sizeof bytes, 0) == sizeof bytes);
  PROBE("mkfifo", mkfifo("fifo", 0600) == 0);
  PROBE("symlink", symlink("a", "b") == 0);
  PROBE("statx", statx(AT_FDCWD, ".", 0, STATX_BASIC_STATS, &about) == 0);
  PROBE("sched_yield", syscall(SYS_sched_yield) == 0);
  PROBE("prctl_name", prctl(PR_SET_NAME, "name") == 0);
  PROBE("setrlimit_lower", setrlimit(RLIMIT_NOFILE, &files) == 0);
  PROBE("shm_open", shm_open("/x", O_CREAT | O_RDWR, 0600) >= 0);
  PROBE("sem_open", sem_open("/s", O_CREAT, 0600, 1) != SEM_FAILED);
  PROBE("waitid", waited());
  PROBE("membarrier", syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0) >= 0);
  PROBE("personality_query", personality(0xffffffff) >= 0);
  PROBE("copy_file_range", copied());
  PROBE("sendfile", sent());
  PROBE("close_range", syscall(436, 20, 30, 0) == 0);
  PROBE("sigaltstack", sigaltstack(&stack, 0) == 0);
  return 0;
}
