/* Forks twice with a session of its own in between; the grandchild sleeps under the name given. */
#include <stdio.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  pid_t child = fork();
  if (child == 0) {
    setsid();
    if (fork() == 0) {
      execl("/bin/sleep", "sleep", argv[1], (char *)0);
      _exit(1);
    }
    _exit(0);
  }
  waitpid(child, 0, 0);
  puts("parent leaves");
  return 0;
}
