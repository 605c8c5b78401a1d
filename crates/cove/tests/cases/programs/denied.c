/* One probe per rule of the system call policy, each in a process of its own, so that a rule that
 * kills is seen as well. One line each: name and error, ALLOWED, or the signal that ended it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define BAD ((void *)1)

/* Runs the call in a child and prints how it went. */
#define PROBE(name, call)                                                                   \
  do {                                                                                      \
    pid_t child = fork();                                                                   \
    if (child == 0) {                                                                       \
      errno = 0;                                                                            \
      long result = (long)(call);                                                           \
      printf("%s %s\n", name, result < 0 ? strerrorname_np(errno) : "ALLOWED");             \
      _exit(0);                                                                             \
    }                                                                                       \
    int status = 0;                                                                         \
    waitpid(child, &status, 0);                                                             \
    if (WIFSIGNALED(status)) printf("%s SIG%s\n", name, sigabbrev_np(WTERMSIG(status)));    \
  } while (0)

static void observe(void) {
  char byte = 0, other = 0;
  struct iovec here = {&byte, 1}, there = {&other, 1};
  char attributes[128] = {0};
  attributes[4] = 64;
  PROBE("io_uring_setup", syscall(425, 0, 0));
  PROBE("io_uring_enter", syscall(426, -1, 0, 0, 0, 0, 0));
  PROBE("io_uring_register", syscall(427, -1, 0, 0, 0));
  PROBE("perf_event_open", syscall(SYS_perf_event_open, attributes, 0, -1, -1, 0));
  PROBE("add_key", syscall(SYS_add_key, "user", "k", "v", 1, -2));
  PROBE("keyctl", syscall(SYS_keyctl, 0, -2, 1));
  PROBE("request_key", syscall(SYS_request_key, "user", "none", 0, 0));
  PROBE("userfaultfd", syscall(SYS_userfaultfd, 1));
  PROBE("ptrace_traceme", ptrace(PTRACE_TRACEME, 0, 0, 0));
  PROBE("ptrace_attach", ptrace(PTRACE_ATTACH, 999999, 0, 0) < 0 && errno == EPERM ? -1 : 0);
  PROBE("process_vm_readv", syscall(SYS_process_vm_readv, getpid(), &here, 1, &there, 1, 0));
  PROBE("process_vm_writev", syscall(SYS_process_vm_writev, getpid(), &here, 1, &there, 1, 0));
  PROBE("pidfd_getfd", syscall(438, syscall(434, getpid(), 0), 1, 0));
  PROBE("kcmp", syscall(SYS_kcmp, getpid(), getpid(), 0, 0, 1));
}

/* clone(2) by number: glibc's wrapper would want a stack. */
static long raw_clone(unsigned long flags) {
  long child = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
  if (child == 0) _exit(0);
  return child;
}

static long raw_clone3(uint64_t flags) {
  uint64_t arguments[11] = {flags, 0, 0, 0, SIGCHLD};
  long child = syscall(435, arguments, sizeof arguments);
  if (child == 0) _exit(0);
  return child;
}

static void namespaces(void) {
  PROBE("unshare_user", unshare(CLONE_NEWUSER));
  PROBE("unshare_mount", unshare(CLONE_NEWNS));
  PROBE("unshare_pid", unshare(CLONE_NEWPID));
  PROBE("unshare_net", unshare(CLONE_NEWNET));
  PROBE("unshare_ipc", unshare(CLONE_NEWIPC));
  PROBE("unshare_uts", unshare(CLONE_NEWUTS));
  PROBE("unshare_cgroup", unshare(CLONE_NEWCGROUP));
  PROBE("unshare_time", unshare(0x80));
  PROBE("clone_user", raw_clone(CLONE_NEWUSER));
  PROBE("clone_mount", raw_clone(CLONE_NEWNS));
  PROBE("clone_pid", raw_clone(CLONE_NEWPID));
  PROBE("clone_net", raw_clone(CLONE_NEWNET));
  PROBE("clone_ipc", raw_clone(CLONE_NEWIPC));
  PROBE("clone_uts", raw_clone(CLONE_NEWUTS));
  PROBE("clone_cgroup", raw_clone(CLONE_NEWCGROUP));
  PROBE("clone_user_high_bits", raw_clone(CLONE_NEWUSER | 0x10000000000UL));
  PROBE("clone3_user", raw_clone3(CLONE_NEWUSER));
  PROBE("clone3_plain", raw_clone3(0));
  /* The kernel would say EBADF, EFAULT or EINVAL to these. */
  PROBE("setns", setns(-1, 0));
}

static void mounts(void) {
  PROBE("mount", syscall(SYS_mount, BAD, BAD, BAD, 0, 0));
  PROBE("umount2", syscall(SYS_umount2, BAD, 0x1000000));
  PROBE("pivot_root", syscall(SYS_pivot_root, BAD, BAD));
  PROBE("chroot", syscall(SYS_chroot, BAD));
  PROBE("fsopen", syscall(430, BAD, 0));
  PROBE("fsconfig", syscall(431, -1, 0, BAD, BAD, 0));
  PROBE("fsmount", syscall(432, -1, 0x1000, 0));
  PROBE("fspick", syscall(433, -1, BAD, 0x1000));
  PROBE("open_tree", syscall(428, -1, "", 0x1000));
  PROBE("move_mount", syscall(429, -1, BAD, -1, BAD, 0));
  PROBE("mount_setattr", syscall(442, -1, BAD, 0x40000000, BAD, 0));
}

static long listener(void) {
  struct sock_filter allow[] = {{0x06, 0, 0, 0x7fff0000}};
  struct sock_fprog program = {1, allow};
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

static void kernel(void) {
  char attributes[128] = {1, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 1};
  PROBE("bpf", syscall(SYS_bpf, 5, BAD, 1));
  PROBE("bpf_map", syscall(SYS_bpf, 0, attributes, 72));
  PROBE("seccomp_listener", listener());
  PROBE("memfd_secret", syscall(447, 0));
  PROBE("kexec_load", syscall(SYS_kexec_load, 0, 0, BAD, 0));
  PROBE("kexec_file_load", syscall(SYS_kexec_file_load, -1, -1, 0, BAD, 0));
  PROBE("init_module", syscall(SYS_init_module, BAD, 1, BAD));
  PROBE("finit_module", syscall(SYS_finit_module, -1, BAD, 0));
  PROBE("delete_module", syscall(SYS_delete_module, BAD, 0));
  PROBE("reboot", syscall(SYS_reboot, 0, 0, 0, 0));
  PROBE("swapon", syscall(SYS_swapon, BAD, 0));
  PROBE("swapoff", syscall(SYS_swapoff, BAD));
  PROBE("acct", syscall(SYS_acct, BAD));
  PROBE("quotactl", syscall(SYS_quotactl, 0x800001 << 8, 0, 0, 0));
  PROBE("quotactl_fd", syscall(443, -1, 0x800007 << 8, 0, 0));
  PROBE("open_by_handle_at", syscall(SYS_open_by_handle_at, -1, BAD, 0));
  PROBE("name_to_handle_at", syscall(SYS_name_to_handle_at, -1, BAD, BAD, BAD, 0x4000000));
  PROBE("fanotify_init", syscall(SYS_fanotify_init, 0x200, 0));
  PROBE("lookup_dcookie", syscall(SYS_lookup_dcookie, 0, BAD, 1));
  PROBE("syslog", syscall(SYS_syslog, 99, 0, 0));
  PROBE("settimeofday", syscall(SYS_settimeofday, BAD, 0));
  PROBE("clock_settime", syscall(SYS_clock_settime, 0, BAD));
  PROBE("adjtimex", syscall(SYS_adjtimex, BAD));
  PROBE("clock_adjtime", syscall(SYS_clock_adjtime, 0, BAD));
  PROBE("iopl", syscall(SYS_iopl, 99));
  PROBE("ioperm", syscall(SYS_ioperm, 1 << 20, 1, 1));
  PROBE("modify_ldt", syscall(SYS_modify_ldt, 0, BAD, 0));
}

static long capset_all(void) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct all[2] = {{~0u, ~0u, ~0u}, {~0u, ~0u, ~0u}};
  return syscall(SYS_capset, &header, all);
}

static void privileges(void) {
  char letter = 'x';
  PROBE("mknod_char", mknod("device", S_IFCHR | 0666, makedev(1, 3)));
  PROBE("mknod_block", mknod("device", S_IFBLK | 0666, makedev(254, 0)));
  PROBE("mknodat_char", mknodat(AT_FDCWD, "device", S_IFCHR | 0666, makedev(1, 1)));
  PROBE("sethostname", syscall(SYS_sethostname, BAD, 4));
  PROBE("setdomainname", syscall(SYS_setdomainname, BAD, 4));
  PROBE("vhangup", syscall(SYS_vhangup));
  PROBE("tiocsti", ioctl(1, TIOCSTI, &letter));
  /* The kernel looks at 32 bits only; a filter that looks at 64 can be passed by. */
  PROBE("tiocsti_high_bits", syscall(SYS_ioctl, 1, 0x100000000UL | TIOCSTI, &letter));
  PROBE("tioclinux", ioctl(1, TIOCLINUX, &letter));
  PROBE("tiocsetd", ioctl(1, TIOCSETD, &letter));
  PROBE("setuid_root", setuid(0));
  PROBE("setgid_root", setgid(0));
  PROBE("setresuid_root", setresuid(0, 0, 0));
  PROBE("setgroups", syscall(SYS_setgroups, 0, 0));
  PROBE("capset", capset_all());
  PROBE("keepcaps_ambient", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_ADMIN, 0, 0));
  PROBE("chown_root", chown("/workspace", 0, 0));
}

static long int80(long number) {
  long result;
  __asm__ volatile("int $0x80" : "=a"(result) : "a"(number) : "memory", "r8", "r9", "r10", "r11");
  return result;
}

int main(void) {
  setvbuf(stdout, 0, _IONBF, 0);
  observe();
  namespaces();
  mounts();
  kernel();
  privileges();
  PROBE("x32_getpid", syscall(0x40000000 | SYS_getpid));
  PROBE("int80_getpid", int80(20));
  return 0;
}
