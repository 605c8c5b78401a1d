# Runs after every case and looks in every place where an earlier run could have left something.
# Prints `clean`, or one line for each find.
import ctypes
import os
import socket

finds = []
libc = ctypes.CDLL(None, use_errno=True)

allowed = {"/workspace": {"main.py", "canary.py"}, "/tmp": set(), "/dev/shm": set(), "/home/user": set()}
for place, names in allowed.items():
    extra = set(os.listdir(place)) - names
    if extra:
        finds.append(f"{place}: {sorted(extra)!r}")

for name, call in (("shm", libc.shmget), ("sem", libc.semget)):
    if call(0x5EED, 0, 0) >= 0:
        finds.append(f"System V {name}")
if libc.msgget(0x5EED, 0) >= 0:
    finds.append("System V message queue")
information = ctypes.create_string_buffer(256)
# shmctl(0, SHM_INFO): the first field is the number of segments in this namespace.
libc.shmctl(0, 14, information)
if int.from_bytes(information.raw[:4], "little"):
    finds.append("System V shared memory of somebody")
librt = ctypes.CDLL("librt.so.1", use_errno=True)
if librt.mq_open(b"/cove-left", os.O_RDONLY) >= 0:
    finds.append("POSIX message queue")
# request_key is number 249 on x86-64.
if libc.syscall(249, b"user", b"cove-left", None, 0) >= 0:
    finds.append("key")
probe = socket.socket(socket.AF_UNIX)
try:
    probe.connect("\0cove-left")
    finds.append("abstract socket")
except OSError:
    pass

numbers = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
if os.getpid() > 8 or numbers[-1] > 8:
    finds.append(f"process numbers {numbers}, own {os.getpid()}")

for place in allowed:
    state = os.statvfs(place)
    if state.f_bfree * state.f_frsize < 15 << 20:
        finds.append(f"{place}: only {state.f_bfree * state.f_frsize} bytes free")
    if state.f_ffree < 950:
        finds.append(f"{place}: only {state.f_ffree} inodes free")

if os.uname().nodename != "@NODENAME@":
    finds.append(f"host name {os.uname().nodename}")

print("\n".join(finds) or "clean")
