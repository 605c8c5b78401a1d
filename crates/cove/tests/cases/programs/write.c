/* Tries to change files and directories of the system. One line each: place and error, or ALLOWED. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static void report(const char *name, long result) {
  printf("%s %s\n", name, result < 0 ? strerrorname_np(errno) : "ALLOWED");
}

int main(void) {
  const char *files[] = {
      "/x", "/usr/x", "/usr/bin/x", "/usr/bin/env", "/bin/sh", "/lib/x", "/etc/x", "/etc/passwd",
      "/etc/ld.so.preload", "/dev/x", "/proc/x", "/home/x", "/opt/x", "/var/x", "/root/x",
      "/sys/x", "/mnt/x", "/run/x"};
  for (unsigned i = 0; i < sizeof files / sizeof *files; i++)
    report(files[i], open(files[i], O_WRONLY | O_CREAT, 0666));
  const char *tool = "/usr/bin/env";
  report("mkdir:/", mkdir("/made", 0777));
  report("mkdir:/usr", mkdir("/usr/made", 0777));
  report("mkdir:/etc", mkdir("/etc/made", 0777));
  report("rename:/etc", rename("/etc", "/etc2"));
  report("rename:/workspace", rename("/workspace", "/workspace2"));
  report("unlink:/usr/bin/env", unlink(tool));
  report("chmod:/usr/bin/env", chmod(tool, 0777));
  report("chown:/usr/bin/env", chown(tool, getuid(), getgid()));
  report("link:/usr/bin/env", link(tool, "/workspace/env"));
  report("utimes:/usr/bin/env", utimensat(AT_FDCWD, tool, 0, 0));
  report("setxattr:/usr/bin/env", setxattr(tool, "user.x", "y", 1, 0));
  report("truncate:/usr/bin/env", truncate(tool, 0));
  return 0;
}
