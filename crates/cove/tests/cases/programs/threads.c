/* Starts threads that wait, until the kernel says no. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void *idle(void *unused) {
  (void)unused;
  pause();
  return 0;
}

int main(void) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 65536);
  for (int i = 0; i < 10000; i++) {
    pthread_t thread;
    int problem = pthread_create(&thread, &attributes, idle, 0);
    if (problem) {
      printf("%d %s\n", i, strerrorname_np(problem));
      return 0;
    }
  }
  puts("all started");
  return 0;
}
