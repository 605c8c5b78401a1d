// Start hook of the warm Java: waits, and lets the virtual machine go on with its program.
//
// A library that the virtual machine loads (`-agentpath`) and calls once, when it has started and is
// about to look for the class of the program. It waits there on the program's own thread, so nothing
// of it is on the class path, among the modules or above the program on the stack.
//
// Descriptor 3 brings the word to go on: a length and that many bytes. What they say is known: a
// command for it has the arguments and the environment that it was started with.
//
// Of JVMTI only three functions are called, each by its place in a table that never changes, so that
// no header of a JDK is needed to compile this; of the C library those that every process has.

extern long read(int, void *, unsigned long);
extern long write(int, const void *, unsigned long);
extern int close(int);
extern void _exit(int) __attribute__((noreturn));

enum {
  CHANNEL = 3,
  // Exit code of a process that nobody is left to give a program to.
  NOT_STARTED = 125,
  // jvmti.h: the version, places in the table of functions, events.
  JVMTI_VERSION_1 = 0x30010000,
  SET_EVENT_NOTIFICATION_MODE = 1,
  SET_EVENT_CALLBACKS = 121,
  JVMTI_ENABLE = 1,
  JVMTI_EVENT_VM_INIT = 50,
  // jni.h: a place in the table of functions.
  GET_ENV = 6,
};

struct Tool { void **functions; };
struct Machine { void **functions; };
struct Callbacks { void (*started)(struct Tool *, void *, void *); };

typedef int GetEnv(struct Machine *, void **, int);
typedef int SetEventCallbacks(struct Tool *, const struct Callbacks *, int);
typedef int SetEventNotificationMode(struct Tool *, int, int, void *);

static void receive(void *bytes, unsigned long size, unsigned long *got) {
  long n = read(CHANNEL, bytes, size);
  if (n <= 0) _exit(NOT_STARTED);
  *got = n;
}

static void started(struct Tool *tool, void *jni, void *thread) {
  (void)tool, (void)jni, (void)thread;
  char packet[8192] = {0};
  unsigned int length;
  unsigned long n;
  if (write(CHANNEL, packet, 1) != 1) _exit(NOT_STARTED);
  receive(&length, sizeof length, &n);
  if (n != sizeof length) _exit(NOT_STARTED);
  for (unsigned long had = 0; had < length; had += n) receive(packet, sizeof packet, &n);
  close(CHANNEL);
}

__attribute__((visibility("default")))
int Agent_OnLoad(struct Machine *machine, char *options, void *reserved) {
  (void)options, (void)reserved;
  static const struct Callbacks callbacks = {started};
  struct Tool *tool = 0;
  GetEnv *get_env = (GetEnv *)machine->functions[GET_ENV];
  if (get_env(machine, (void **)&tool, JVMTI_VERSION_1) != 0) return 1;
  SetEventCallbacks *set = (SetEventCallbacks *)tool->functions[SET_EVENT_CALLBACKS];
  if (set(tool, &callbacks, sizeof callbacks) != 0) return 1;
  SetEventNotificationMode *enable =
      (SetEventNotificationMode *)tool->functions[SET_EVENT_NOTIFICATION_MODE];
  return enable(tool, JVMTI_ENABLE, JVMTI_EVENT_VM_INIT, 0);
}
