/* Leaves something in every place that could outlive a run. The canary looks for all of it. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mqueue.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

int main(void) {
  const char *places[] = {"/workspace", "/tmp", "/home/user", "/dev/shm"};
  char path[64];
  for (int i = 0; i < 4; i++) {
    snprintf(path, sizeof path, "%s/cove-left", places[i]);
    close(open(path, O_CREAT | O_WRONLY, 0666));
    snprintf(path, sizeof path, "%s/.cove-left", places[i]);
    mkdir(path, 0);
  }
  shmget(0x5eed, 4096, IPC_CREAT | 0666);
  msgget(0x5eed, IPC_CREAT | 0666);
  semget(0x5eed, 1, IPC_CREAT | 0666);
  mq_open("/cove-left", O_CREAT | O_RDWR, 0666, 0);
  syscall(SYS_add_key, "user", "cove-left", "x", 1, -4);
  struct sockaddr_un name = {.sun_family = AF_UNIX};
  strcpy(name.sun_path + 1, "cove-left");
  int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  bind(listener, (struct sockaddr *)&name, offsetof(struct sockaddr_un, sun_path) + 10);
  listen(listener, 1);
  if (fork() == 0) {
    setsid();
    pause();
  }
  puts("left");
  return 0;
}
