//! System calls that sandboxed code may not make, as data, and a compiler from that data to BPF.
//!
//! Allow by default, deny by list: programs must run unchanged, and an allow list would
//! additionally deny mostly calls that are harmless in fresh namespaces without privileges. The
//! policy denies calls that namespaces do not make harmless: ways to new privileges (user
//! namespaces), kernel surface with a history (io_uring, bpf, userfaultfd), and channels between
//! sandboxes through shared objects (the page cache and inodes of `/usr`, keyrings).
//!
//! The filter is a binary search by call number. The kernel evaluates a new filter for every call
//! number to learn which are always allowed (`seccomp_cache_prepare`), so a linear filter would
//! make that step of each program start about ten times as expensive.
//!
//! # References
//! - <https://docs.kernel.org/userspace-api/seccomp_filter.html>
//! - <https://man7.org/linux/man-pages/man2/seccomp.2.html>

use crate::spec::SeccompProfile;
use crate::sys::BpfInstruction;

/// Result of a denied call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DenyAction {
    /// Fails with this errno.
    Errno(i32),
}

/// Condition of a rule. Compares the low 32 bits of arguments: the kernel uses no others for these
/// calls.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RuleCondition {
    /// For all arguments.
    Always,
    /// Any bit of the mask is set in that argument.
    AnyBit { arg: u8, mask: u32 },
    /// That argument under the mask is one of these.
    OneOf { arg: u8, mask: u32, values: &'static [u32] },
    /// That argument under the mask is none of these.
    NoneOf { arg: u8, mask: u32, values: &'static [u32] },
}

/// Processes that a filter is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilterSubject {
    /// A program of an execution.
    Run,
    /// A compiler of an execution.
    Compile,
    /// The programs of a session, and its init.
    Session,
    /// A program of an execution that has a loopback.
    Connected,
}

impl FilterSubject {
    /// All subjects, in the order of their numbers.
    pub(crate) const ALL: [FilterSubject; 4] = [
        FilterSubject::Run,
        FilterSubject::Compile,
        FilterSubject::Session,
        FilterSubject::Connected,
    ];
}

/// Compiled filters, by the number of the subject.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FilterSet<'a>(pub(crate) [&'a [BpfInstruction]; FilterSubject::ALL.len()]);

impl<'a> FilterSet<'a> {
    pub(crate) fn of(self, holder: FilterSubject) -> &'a [BpfInstruction] {
        let [run, compile, session, connected] = self.0;
        match holder {
            FilterSubject::Run => run,
            FilterSubject::Compile => compile,
            FilterSubject::Session => session,
            FilterSubject::Connected => connected,
        }
    }
}

impl From<SeccompProfile> for FilterSubject {
    fn from(profile: SeccompProfile) -> FilterSubject {
        match profile {
            SeccompProfile::Run => FilterSubject::Run,
            SeccompProfile::Compile => FilterSubject::Compile,
        }
    }
}

/// Subjects that a rule applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleSubjects {
    Always,
    /// Programs only, not compilers and sessions.
    Run,
    /// Compilers only.
    Compile,
    /// Programs and compilers, not sessions.
    Commands,
    /// Subjects without a loopback.
    Alone,
    /// Subjects with a loopback.
    Connected,
}

impl RuleSubjects {
    const fn holds(self, holder: FilterSubject) -> bool {
        match self {
            RuleSubjects::Always => true,
            RuleSubjects::Run => matches!(holder, FilterSubject::Run | FilterSubject::Connected),
            RuleSubjects::Compile => matches!(holder, FilterSubject::Compile),
            RuleSubjects::Commands => !matches!(holder, FilterSubject::Session),
            RuleSubjects::Alone => matches!(holder, FilterSubject::Run | FilterSubject::Compile),
            RuleSubjects::Connected => {
                matches!(holder, FilterSubject::Session | FilterSubject::Connected)
            }
        }
    }
}

/// A line of the policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SyscallRule {
    /// Name of the call, for tests and for reports.
    name: &'static str,
    number: i64,
    when: RuleCondition,
    answer: DenyAction,
    holds: RuleSubjects,
    /// Reason for the rule.
    why: &'static str,
}

const EPERM: DenyAction = DenyAction::Errno(libc::EPERM);
/// For calls whose callers fall back to an older call if the kernel lacks them.
const ENOSYS: DenyAction = DenyAction::Errno(libc::ENOSYS);

const fn deny(name: &'static str, number: i64, why: &'static str) -> SyscallRule {
    SyscallRule {
        name,
        number,
        when: RuleCondition::Always,
        answer: EPERM,
        holds: RuleSubjects::Always,
        why,
    }
}

const fn answer(rule: SyscallRule, answer: DenyAction) -> SyscallRule {
    SyscallRule { answer, ..rule }
}

const fn when(rule: SyscallRule, when: RuleCondition) -> SyscallRule {
    SyscallRule { when, ..rule }
}

const fn run_only(rule: SyscallRule) -> SyscallRule {
    SyscallRule { holds: RuleSubjects::Run, ..rule }
}

const fn compile_only(rule: SyscallRule) -> SyscallRule {
    SyscallRule { holds: RuleSubjects::Compile, ..rule }
}

const fn commands(rule: SyscallRule) -> SyscallRule {
    SyscallRule { holds: RuleSubjects::Commands, ..rule }
}

const fn alone(rule: SyscallRule) -> SyscallRule {
    SyscallRule { holds: RuleSubjects::Alone, ..rule }
}

const fn connected(rule: SyscallRule) -> SyscallRule {
    SyscallRule { holds: RuleSubjects::Connected, ..rule }
}

/// Every `CLONE_NEW*` flag of clone(2).
const NEW_NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET)
    .cast_unsigned();

/// `S_IFMT` and the two kinds of device node.
const FILE_TYPE: u32 = libc::S_IFMT;
const DEVICES: &[u32] = &[libc::S_IFCHR, libc::S_IFBLK];

/// Address families, kinds and protocols of sockets.
const LOCAL: &[u32] = &[libc::AF_UNIX.cast_unsigned()];
const LOOPBACK: &[u32] =
    &[libc::AF_UNIX.cast_unsigned(), libc::AF_INET.cast_unsigned(), libc::AF_INET6.cast_unsigned()];
/// `SOCK_TYPE_MASK` of linux/net.h: flags are in the bits above it.
const SOCKET_KIND: u32 = 0xf;
const KINDS: &[u32] = &[
    libc::SOCK_STREAM.cast_unsigned(),
    libc::SOCK_DGRAM.cast_unsigned(),
    libc::SOCK_SEQPACKET.cast_unsigned(),
];
/// Includes 1 for `AF_UNIX`, which accepts it as the number of its only protocol; for the internet
/// families it is ICMP, which requires a group that no sandboxed process has.
const PROTOCOLS: &[u32] =
    &[0, 1, libc::IPPROTO_TCP.cast_unsigned(), libc::IPPROTO_UDP.cast_unsigned()];

/// Calls newer than the `libc` crate's tables; the same number on every architecture.
const STATMOUNT: i64 = 457;
const LISTMOUNT: i64 = 458;
const OPEN_TREE_ATTR: i64 = 467;
const CACHESTAT: i64 = 451;

/// The policy.
#[rustfmt::skip] // one rule, one line
pub(crate) const POLICY: &[SyscallRule] = &[
    // New namespaces: a user namespace gives every capability over objects created in it.
    when(deny("clone", libc::SYS_clone, "new namespaces"), RuleCondition::AnyBit { arg: 0, mask: NEW_NAMESPACES }),
    answer(deny("clone3", libc::SYS_clone3, "its flags are behind a pointer; libc falls back to clone"), ENOSYS),
    deny("unshare", libc::SYS_unshare, "new namespaces"),
    deny("setns", libc::SYS_setns, "other namespaces"),

    // Kernel surface with a history of escapes, none of which a program needs.
    answer(deny("io_uring_setup", libc::SYS_io_uring_setup, "large surface; passes by this filter"), ENOSYS),
    answer(deny("io_uring_enter", libc::SYS_io_uring_enter, "as io_uring_setup"), ENOSYS),
    answer(deny("io_uring_register", libc::SYS_io_uring_register, "as io_uring_setup"), ENOSYS),
    deny("bpf", libc::SYS_bpf, "code in the kernel"),
    deny("perf_event_open", libc::SYS_perf_event_open, "large surface; side channels"),
    deny("userfaultfd", libc::SYS_userfaultfd, "makes kernel races winnable"),
    when(deny("seccomp", libc::SYS_seccomp, "a listener can answer for other processes"), RuleCondition::AnyBit { arg: 1, mask: 8 }),
    deny("kexec_load", libc::SYS_kexec_load, "replaces the kernel"),
    deny("kexec_file_load", libc::SYS_kexec_file_load, "replaces the kernel"),
    deny("init_module", libc::SYS_init_module, "code in the kernel"),
    deny("finit_module", libc::SYS_finit_module, "code in the kernel"),
    deny("delete_module", libc::SYS_delete_module, "code in the kernel"),
    deny("lookup_dcookie", libc::SYS_lookup_dcookie, "tells paths of the host"),
    deny("syslog", libc::SYS_syslog, "the host's kernel log"),

    // Inspection or control of other processes: the guest init above all.
    deny("ptrace", libc::SYS_ptrace, "the guest init must not be stopped or read"),
    deny("process_vm_readv", libc::SYS_process_vm_readv, "memory of other processes"),
    deny("process_vm_writev", libc::SYS_process_vm_writev, "memory of other processes"),
    deny("process_madvise", libc::SYS_process_madvise, "memory of other processes"),
    deny("pidfd_getfd", libc::SYS_pidfd_getfd, "descriptors of other processes"),
    deny("kcmp", libc::SYS_kcmp, "tells kernel addresses apart"),
    when(deny("prlimit64", libc::SYS_prlimit64, "limits of other processes: the guest init's, where it has the same user"), RuleCondition::NoneOf { arg: 0, mask: u32::MAX, values: &[0] }),
    deny("move_pages", libc::SYS_move_pages, "memory of other processes"),
    deny("migrate_pages", libc::SYS_migrate_pages, "memory of other processes"),

    // Keyrings outlive a sandbox and are shared by user id.
    deny("add_key", libc::SYS_add_key, "keyrings outlive the sandbox"),
    deny("request_key", libc::SYS_request_key, "keyrings outlive the sandbox"),
    deny("keyctl", libc::SYS_keyctl, "keyrings outlive the sandbox"),

    // Mounts and roots: missing privileges deny these already; this is a second barrier.
    deny("mount", libc::SYS_mount, "the file system's shape"),
    deny("umount2", libc::SYS_umount2, "the file system's shape"),
    deny("pivot_root", libc::SYS_pivot_root, "the file system's shape"),
    deny("chroot", libc::SYS_chroot, "the file system's shape"),
    deny("fsopen", libc::SYS_fsopen, "the file system's shape"),
    deny("fsconfig", libc::SYS_fsconfig, "the file system's shape"),
    deny("fsmount", libc::SYS_fsmount, "the file system's shape"),
    deny("fspick", libc::SYS_fspick, "the file system's shape"),
    deny("move_mount", libc::SYS_move_mount, "the file system's shape"),
    deny("open_tree", libc::SYS_open_tree, "the file system's shape"),
    deny("open_tree_attr", OPEN_TREE_ATTR, "the file system's shape"),
    deny("mount_setattr", libc::SYS_mount_setattr, "the file system's shape"),
    deny("statmount", STATMOUNT, "tells paths of the host"),
    deny("listmount", LISTMOUNT, "tells paths of the host"),
    deny("open_by_handle_at", libc::SYS_open_by_handle_at, "opens files by number, past every path"),
    deny("name_to_handle_at", libc::SYS_name_to_handle_at, "numbers for open_by_handle_at"),
    when(deny("mknodat", libc::SYS_mknodat, "device nodes"), RuleCondition::OneOf { arg: 2, mask: FILE_TYPE, values: DEVICES }),
    #[cfg(target_arch = "x86_64")]
    when(deny("mknod", libc::SYS_mknod, "device nodes"), RuleCondition::OneOf { arg: 1, mask: FILE_TYPE, values: DEVICES }),

    // The host's own state.
    deny("reboot", libc::SYS_reboot, "the host"),
    deny("swapon", libc::SYS_swapon, "the host"),
    deny("swapoff", libc::SYS_swapoff, "the host"),
    deny("acct", libc::SYS_acct, "the host"),
    deny("quotactl", libc::SYS_quotactl, "the host"),
    deny("quotactl_fd", libc::SYS_quotactl_fd, "the host"),
    deny("settimeofday", libc::SYS_settimeofday, "the host's clock"),
    deny("clock_settime", libc::SYS_clock_settime, "the host's clock"),
    deny("clock_adjtime", libc::SYS_clock_adjtime, "the host's clock"),
    deny("adjtimex", libc::SYS_adjtimex, "the host's clock"),
    deny("sethostname", libc::SYS_sethostname, "the sandbox's name is fixed"),
    deny("setdomainname", libc::SYS_setdomainname, "the sandbox's name is fixed"),
    deny("vhangup", libc::SYS_vhangup, "the host's terminals"),
    deny("nfsservctl", libc::SYS_nfsservctl, "the host"),
    #[cfg(target_arch = "x86_64")]
    deny("iopl", libc::SYS_iopl, "hardware"),
    #[cfg(target_arch = "x86_64")]
    deny("ioperm", libc::SYS_ioperm, "hardware"),
    #[cfg(target_arch = "x86_64")]
    deny("modify_ldt", libc::SYS_modify_ldt, "old surface with a history"),
    when(deny("ioctl", libc::SYS_ioctl, "typing into a terminal, and line disciplines, which are modules with a history"), RuleCondition::OneOf { arg: 1, mask: u32::MAX, values: &[0x5412 /* TIOCSTI */, 0x541C /* TIOCLINUX */, 0x5423 /* TIOCSETD */] }),

    // Memory that the limits do not count.
    deny("memfd_secret", libc::SYS_memfd_secret, "memory locked beyond RLIMIT_MEMLOCK"),

    // Channels between sandboxes through the inodes and the page cache of the shared, read-only
    // /usr.
    answer(run_only(deny("flock", libc::SYS_flock, "an exclusive lock on a shared file is seen by all")), DenyAction::Errno(libc::ENOLCK)),
    // An errno of 0 is success (seccomp(2)). Tools such as `go build` fail without locks; a
    // compiler is alone in its sandbox and needs none.
    answer(compile_only(deny("flock", libc::SYS_flock, "as for programs; a compiler is told that it has the lock")), DenyAction::Errno(0)),
    commands(when(deny("fcntl", libc::SYS_fcntl, "asking for locks of others; taking one's own stays allowed"), RuleCondition::OneOf { arg: 1, mask: u32::MAX, values: &[5 /* F_GETLK */, 36 /* F_OFD_GETLK */] })),
    when(deny("fcntl", libc::SYS_fcntl, "leases and notification on shared files"), RuleCondition::OneOf { arg: 1, mask: u32::MAX, values: &[1024 /* F_SETLEASE */, 1026 /* F_NOTIFY */] }),
    answer(commands(deny("inotify_add_watch", libc::SYS_inotify_add_watch, "tells which shared files others open; programs poll instead")), DenyAction::Errno(libc::ENOSPC)),
    deny("fanotify_init", libc::SYS_fanotify_init, "as inotify_add_watch"),
    deny("fanotify_mark", libc::SYS_fanotify_mark, "as inotify_add_watch"),
    deny("cachestat", CACHESTAT, "tells which shared files others have read"),
    answer(when(deny("preadv2", libc::SYS_preadv2, "a read that does not wait tells what is cached, as cachestat"), RuleCondition::AnyBit { arg: 5, mask: 8 /* RWF_NOWAIT */ }), DenyAction::Errno(libc::EOPNOTSUPP)),
    when(deny("fadvise64", libc::SYS_fadvise64, "drops shared pages from the cache for all"), RuleCondition::OneOf { arg: 3, mask: u32::MAX, values: &[4 /* POSIX_FADV_DONTNEED */] }),

    // Networking: the namespace is empty, and address families are kernel surface.
    answer(alone(when(deny("socket", libc::SYS_socket, "only local sockets"), RuleCondition::NoneOf { arg: 0, mask: u32::MAX, values: LOCAL })), DenyAction::Errno(libc::EAFNOSUPPORT)),
    answer(alone(when(deny("socketpair", libc::SYS_socketpair, "only local sockets"), RuleCondition::NoneOf { arg: 0, mask: u32::MAX, values: LOCAL })), DenyAction::Errno(libc::EAFNOSUPPORT)),
    // Sessions have a loopback, and executions may, for TCP and UDP; other protocols are modules
    // with a history.
    answer(connected(when(deny("socket", libc::SYS_socket, "only local sockets and the loopback's"), RuleCondition::NoneOf { arg: 0, mask: u32::MAX, values: LOOPBACK })), DenyAction::Errno(libc::EAFNOSUPPORT)),
    answer(connected(when(deny("socket", libc::SYS_socket, "kinds that local sockets, TCP and UDP have no use for"), RuleCondition::NoneOf { arg: 1, mask: SOCKET_KIND, values: KINDS })), DenyAction::Errno(libc::ESOCKTNOSUPPORT)),
    answer(connected(when(deny("socket", libc::SYS_socket, "other protocols: SCTP, DCCP, MPTCP and their like"), RuleCondition::NoneOf { arg: 2, mask: u32::MAX, values: PROTOCOLS })), DenyAction::Errno(libc::EPROTONOSUPPORT)),
    answer(connected(when(deny("socketpair", libc::SYS_socketpair, "only local sockets"), RuleCondition::NoneOf { arg: 0, mask: u32::MAX, values: LOCAL })), DenyAction::Errno(libc::EAFNOSUPPORT)),
    answer(connected(when(deny("setsockopt", libc::SYS_setsockopt, "TCP_ULP: TLS and others in the kernel, with a history"), RuleCondition::OneOf { arg: 2, mask: u32::MAX, values: &[31 /* TCP_ULP */] })), DenyAction::Errno(libc::ENOPROTOOPT)),
];

/// Returns the policy for reports: each call that is denied, always or for some arguments, and the
/// reason.
pub fn denied_calls() -> impl Iterator<Item = (&'static str, &'static str)> {
    POLICY.iter().map(|rule| (rule.name, rule.why))
}

/// `AUDIT_ARCH_*` of linux/audit.h: calls through another entry (32-bit `int 0x80`) have another
/// value.
#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the sandbox knows the system calls of x86_64 and aarch64 only");

/// Bit of the call number that marks the x32 variant; no number of aarch64 has it.
const X32_BIT: u32 = 0x4000_0000;

// seccomp_data offsets (linux/seccomp.h).
const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCH: u32 = 4;
const fn offset_low(arg: u8) -> u32 {
    16 + 8 * arg as u32
}

// linux/bpf_common.h
const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
const JUMP: u16 = 0x05; // BPF_JMP | BPF_JA
const JUMP_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const JUMP_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const JUMP_BITS: u16 = 0x45; // BPF_JMP | BPF_JSET | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K

// linux/seccomp.h
const ALLOW: u32 = 0x7fff_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const ERRNO: u32 = 0x0005_0000;

const fn op(code: u16, k: u32) -> BpfInstruction {
    BpfInstruction { code, jt: 0, jf: 0, k }
}

const fn branch(code: u16, k: u32, jt: u8, jf: u8) -> BpfInstruction {
    BpfInstruction { code, jt, jf, k }
}

fn verdict(answer: DenyAction) -> BpfInstruction {
    let DenyAction::Errno(errno) = answer;
    op(RETURN, ERRNO | (errno.unsigned_abs() & 0xffff))
}

/// Compiles the rules that apply to `holder`.
pub(crate) fn compile(holder: impl Into<FilterSubject>) -> Vec<BpfInstruction> {
    let holder = holder.into();
    let mut rules: Vec<&SyscallRule> =
        POLICY.iter().filter(|rule| rule.holds.holds(holder)).collect();
    rules.sort_by_key(|rule| rule.number);
    let mut groups: Vec<(u32, Vec<BpfInstruction>)> = Vec::new();
    for chunk in rules.chunk_by(|a, b| a.number == b.number) {
        let number = chunk.first().map_or(0, |rule| u32::try_from(rule.number).unwrap_or(u32::MAX));
        groups.push((number, decide(chunk)));
    }
    let mut program = vec![
        op(LOAD, OFFSET_ARCH),
        branch(JUMP_EQUAL, ARCH, 1, 0),
        op(RETURN, KILL_PROCESS),
        op(LOAD, OFFSET_NUMBER),
        branch(JUMP_AT_LEAST, X32_BIT, 0, 1),
        op(RETURN, KILL_PROCESS),
    ];
    program.extend(search(&groups));
    program
}

/// Call numbers that a leaf of the search compares linearly: smaller leaves make the program
/// longer, which costs translation to machine code; larger leaves make the search slower.
const LEAF: usize = 8;

/// Binary search for the call number, which is in the accumulator.
fn search(groups: &[(u32, Vec<BpfInstruction>)]) -> Vec<BpfInstruction> {
    if groups.len() <= LEAF {
        return leaf(groups);
    }
    let (low, high) = groups.split_at(groups.len() / 2);
    let left = search(low);
    let right = search(high);
    let first_high = high.first().map_or(0, |(number, _)| *number);
    // A conditional jump reaches 255 instructions only; the plain one reaches any number.
    let mut code = vec![branch(JUMP_AT_LEAST, first_high, 0, 1), op(JUMP, length(&left))];
    code.extend(left);
    code.extend(right);
    code
}

/// Compares with each number, and jumps to its actions; equal bodies are stored once.
fn leaf(groups: &[(u32, Vec<BpfInstruction>)]) -> Vec<BpfInstruction> {
    let mut bodies: Vec<(&[BpfInstruction], usize)> = Vec::new();
    let mut end = 0;
    for (_, body) in groups {
        if !bodies.iter().any(|(known, _)| known == body) {
            bodies.push((body, end));
            end += body.len();
        }
    }
    let mut code = Vec::new();
    for (index, (number, body)) in groups.iter().enumerate() {
        let at = bodies.iter().find(|(known, _)| known == body).map_or(0, |(_, at)| *at);
        // Skips the remaining comparisons and the return after them.
        let over = groups.len() - index - 1 + 1 + at;
        let over = u8::try_from(over).expect("a leaf is shorter than a jump reaches");
        code.push(branch(JUMP_EQUAL, *number, over, 0));
    }
    code.push(op(RETURN, ALLOW));
    for (body, _) in bodies {
        code.extend_from_slice(body);
    }
    code
}

fn length(code: &[BpfInstruction]) -> u32 {
    u32::try_from(code.len()).unwrap_or(u32::MAX)
}

/// Returns the code for a call that has rules: the first applicable rule answers; otherwise the
/// call is allowed.
fn decide(rules: &[&SyscallRule]) -> Vec<BpfInstruction> {
    let mut code = Vec::new();
    for rule in rules {
        match rule.when {
            RuleCondition::Always => {
                code.push(verdict(rule.answer));
                return code;
            }
            RuleCondition::AnyBit { arg, mask } => code.extend([
                op(LOAD, offset_low(arg)),
                branch(JUMP_BITS, mask, 0, 1),
                verdict(rule.answer),
            ]),
            RuleCondition::OneOf { arg, mask, values } => {
                code.extend([op(LOAD, offset_low(arg)), op(AND, mask)]);
                for value in values {
                    code.extend([branch(JUMP_EQUAL, *value, 0, 1), verdict(rule.answer)]);
                }
            }
            RuleCondition::NoneOf { arg, mask, values } => {
                code.extend([op(LOAD, offset_low(arg)), op(AND, mask)]);
                for (left, value) in (1..=values.len()).rev().zip(values) {
                    // Skips the remaining comparisons and the verdict after them.
                    let over = u8::try_from(left).expect("a list is shorter than a jump reaches");
                    code.push(branch(JUMP_EQUAL, *value, over, 0));
                }
                code.push(verdict(rule.answer));
            }
        }
    }
    code.push(op(RETURN, ALLOW));
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a filter as the kernel would; returns its answer and the number of steps.
    fn run(program: &[BpfInstruction], number: u32, arch: u32, args: [u64; 6]) -> (u32, usize) {
        let (mut a, mut pc, mut steps) = (0u32, 0usize, 0usize);
        loop {
            let i = program[pc];
            steps += 1;
            pc += 1;
            match i.code {
                LOAD => {
                    a = match i.k {
                        OFFSET_NUMBER => number,
                        OFFSET_ARCH => arch,
                        k => (args[usize::try_from((k - 16) / 8).unwrap()] & 0xffff_ffff) as u32,
                    }
                }
                AND => a &= i.k,
                JUMP => pc += i.k as usize,
                JUMP_EQUAL => pc += usize::from(if a == i.k { i.jt } else { i.jf }),
                JUMP_AT_LEAST => pc += usize::from(if a >= i.k { i.jt } else { i.jf }),
                JUMP_BITS => pc += usize::from(if a & i.k != 0 { i.jt } else { i.jf }),
                RETURN => return (i.k, steps),
                other => panic!("unknown instruction {other:#x}"),
            }
        }
    }

    /// Evaluates the policy directly, rule by rule.
    fn oracle(holder: FilterSubject, number: u32, args: [u64; 6]) -> u32 {
        for rule in POLICY {
            if rule.number != i64::from(number) || !rule.holds.holds(holder) {
                continue;
            }
            let low = |arg: u8| (args[usize::from(arg)] & 0xffff_ffff) as u32;
            let applies = match rule.when {
                RuleCondition::Always => true,
                RuleCondition::AnyBit { arg, mask } => low(arg) & mask != 0,
                RuleCondition::OneOf { arg, mask, values } => values.contains(&(low(arg) & mask)),
                RuleCondition::NoneOf { arg, mask, values } => !values.contains(&(low(arg) & mask)),
            };
            if applies {
                return verdict(rule.answer).k;
            }
        }
        ALLOW
    }

    #[test]
    fn the_filter_says_what_the_policy_says() {
        let interesting: Vec<u64> = POLICY
            .iter()
            .flat_map(|rule| match rule.when {
                RuleCondition::Always => vec![],
                RuleCondition::AnyBit { mask, .. } => vec![u64::from(mask), u64::from(!mask)],
                RuleCondition::OneOf { values, .. } | RuleCondition::NoneOf { values, .. } => {
                    values.iter().flat_map(|v| [u64::from(*v), u64::from(*v) | 1 << 40]).collect()
                }
            })
            .chain([0, 1, 2, u64::MAX])
            .collect();
        for holder in FilterSubject::ALL {
            let program = compile(holder);
            for number in 0..600 {
                for value in &interesting {
                    let args = [*value; 6];
                    let (got, steps) = run(&program, number, ARCH, args);
                    assert_eq!(got, oracle(holder, number, args), "call {number}, args {value:#x}");
                    assert!(steps < 40, "call {number} takes {steps} steps");
                }
            }
        }
    }

    #[test]
    fn foreign_entries_are_fatal() {
        let program = compile(SeccompProfile::Run);
        assert_eq!(run(&program, 1, 0x4000_0003, [0; 6]).0, KILL_PROCESS);
        assert_eq!(run(&program, X32_BIT | 1, ARCH, [0; 6]).0, KILL_PROCESS);
        assert_eq!(run(&program, u32::MAX, ARCH, [0; 6]).0, KILL_PROCESS);
    }

    #[test]
    fn every_rule_says_why() {
        assert!(POLICY.iter().all(|rule| !rule.why.is_empty() && !rule.name.is_empty()));
        assert!(compile(SeccompProfile::Run).len() < 256, "{}", compile(SeccompProfile::Run).len());
    }
}
