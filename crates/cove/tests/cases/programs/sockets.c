/* Socket families. One line each: name and error, or ALLOWED. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static void report(const char *name, long result) {
  printf("%s %s\n", name, result < 0 ? strerrorname_np(errno) : "ALLOWED");
}

int main(void) {
  int pair[2];
  report("unix", socket(AF_UNIX, SOCK_STREAM, 0));
  report("inet", socket(AF_INET, SOCK_STREAM, 0));
  /* The kernel looks at 32 bits only; a filter that looks at 64 can be passed by. */
  report("inet_high_bits", syscall(SYS_socket, 0x100000000UL | AF_INET, SOCK_STREAM, 0));
  report("inet_udp", socket(AF_INET, SOCK_DGRAM, 0));
  report("inet_raw", socket(AF_INET, SOCK_RAW, 1));
  report("inet6", socket(AF_INET6, SOCK_STREAM, 0));
  report("packet", socket(AF_PACKET, SOCK_RAW, 0));
  report("netlink_route", socket(AF_NETLINK, SOCK_RAW, 0));
  report("netlink_audit", socket(AF_NETLINK, SOCK_RAW, 9));
  report("netlink_uevent", socket(AF_NETLINK, SOCK_RAW, 15));
  report("alg", socket(AF_ALG, SOCK_SEQPACKET, 0));
  report("vsock", socket(AF_VSOCK, SOCK_STREAM, 0));
  report("xdp", socket(44, SOCK_RAW, 0));
  report("key", socket(AF_KEY, SOCK_RAW, 2));
  report("bluetooth", socket(AF_BLUETOOTH, SOCK_RAW, 1));
  report("can", socket(AF_CAN, SOCK_RAW, 1));
  report("tipc", socket(AF_TIPC, SOCK_SEQPACKET, 0));
  report("rds", socket(AF_RDS, SOCK_SEQPACKET, 0));
  report("smc", socket(43, SOCK_STREAM, 0));
  report("qipcrtr", socket(42, SOCK_DGRAM, 0));
  report("mctp", socket(45, SOCK_DGRAM, 0));
  report("pair_inet", socketpair(AF_INET, SOCK_STREAM, 0, pair));
  return 0;
}
