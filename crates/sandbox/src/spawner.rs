//! The spawner: a small single-threaded process that makes sandboxes.
//!
//! It is this binary again, started before the server's async runtime, in a mount namespace that
//! already has the root file system of sandboxes. Being small and single-threaded, it may fork
//! without exec, unlike the server; a sandbox is a copy of it in fresh namespaces. It prepares
//! control groups and network namespaces, waits for sandboxes to end, and removes their remains.
//!
//! When the server dies, the spawner ends all sandboxes, removes their groups and the server's, and
//! exits.

use std::ffi::{CString, c_int};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::cgroup::{self, CommandGroups, GroupRemoval, HierarchyRole, SlotGroups};
use crate::codec::{MalformedMessage, MessageReader, MessageWriter, from_spawner, to_spawner};
use crate::disk;
use crate::failure::{FailureContext, StepFailure};
use crate::guest::{self, GuestSetup, WaitingRuntime};
use crate::image;
use crate::seccomp::{self, FilterSet, FilterSubject};
use crate::spec::{Toolchain, WarmRuntime};
use crate::sys::{self, BpfInstruction, KernelClock};
use crate::warm::{self, ZygoteContext, Zygotes};
use networks::NetworkFactory;
pub(crate) use networks::NetworkMode;

mod networks;

/// User id inside a rootless sandbox, mapped to the caller's.
const ROOTLESS_USER: u32 = 1000;
/// Interval between attempts to remove a group whose processes are still dying.
const REMOVAL_INTERVAL: Duration = Duration::from_millis(1);
/// Time after which a slot is retired because one of its groups cannot be removed.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of bits of a capability set.
const CAPABILITY_MAX: u64 = 63;
/// Namespaces that are fresh in every sandbox. The network namespace comes from the slot.
const FRESH: c_int =
    libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;

/// Setup that a spawner receives at its start.
#[derive(Debug)]
pub(crate) struct SpawnerSetup {
    pub(crate) index: u32,
    pub(crate) slots: u32,
    /// First user id of its slots; `None` without root.
    pub(crate) uid_base: Option<u32>,
    pub(crate) toolchains: Vec<Toolchain>,
    pub(crate) runtimes: Vec<WarmRuntime>,
    pub(crate) unified_limits: bool,
    pub(crate) roles: Vec<HierarchyRole>,
    /// Name of the server's parent groups.
    pub(crate) parent_name: String,
}

impl SpawnerSetup {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = MessageWriter::new(to_spawner::SETUP)
            .u32(self.index)
            .u32(self.slots)
            .u8(self.uid_base.is_some().into())
            .u32(self.uid_base.unwrap_or(0))
            .u8(self.unified_limits.into())
            .bytes(self.parent_name.as_bytes())
            .u32(u32::try_from(self.roles.len()).unwrap_or(0));
        for role in &self.roles {
            w = w.u8(role.number());
        }
        w = w.u32(u32::try_from(self.toolchains.len()).unwrap_or(0));
        for toolchain in &self.toolchains {
            use std::os::unix::ffi::OsStrExt;
            w = w.bytes(toolchain.source.as_os_str().as_bytes()).bytes(toolchain.name.as_bytes());
        }
        w = w.u32(u32::try_from(self.runtimes.len()).unwrap_or(0));
        for runtime in &self.runtimes {
            w = runtime.encode(w);
        }
        w.finish()
    }

    fn decode(r: &mut MessageReader<'_>) -> Result<SpawnerSetup, MalformedMessage> {
        if r.u8()? != to_spawner::SETUP {
            return Err(MalformedMessage);
        }
        let (index, slots) = (r.u32()?, r.u32()?);
        let has_users = r.u8()? != 0;
        let uid_base = r.u32()?;
        let unified_limits = r.u8()? != 0;
        let parent_name = r.string()?;
        let roles = (0..r.count()?)
            .map(|_| HierarchyRole::from_number(r.u8()?).ok_or(MalformedMessage))
            .collect::<Result<_, _>>()?;
        let mut toolchains = Vec::new();
        for _ in 0..r.count()? {
            use std::os::unix::ffi::OsStringExt;
            let source = PathBuf::from(std::ffi::OsString::from_vec(r.bytes()?.to_vec()));
            toolchains.push(Toolchain { source, name: r.string()? });
        }
        let runtimes = (0..r.count()?).map(|_| WarmRuntime::decode(r)).collect::<Result<_, _>>()?;
        Ok(SpawnerSetup {
            index,
            slots,
            uid_base: has_users.then_some(uid_base),
            toolchains,
            runtimes,
            unified_limits,
            roles,
            parent_name,
        })
    }
}

/// First message of a spawner, when it is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpawnerHello {
    /// Version of the Landlock interface if it is used; 0 otherwise.
    pub(crate) landlock: u32,
}

/// Time slice of a sandbox's process while another process wants the same processor. A program that
/// starts computes for a few milliseconds. With the kernel's shorter slice, it is preempted in the
/// middle, and on a processor with many sandboxes runs again only after several ticks of the
/// scheduler (4 ms with 250 a second).
const TIME_SLICE: Duration = Duration::from_millis(6);

/// Body of a spawner process.
pub(crate) fn main() -> ExitCode {
    let socket = match take_socket() {
        Ok(socket) => socket,
        Err(_) => return ExitCode::from(2),
    };
    match SpawnerLoop::start(socket.as_fd()) {
        Ok(mut spawner) => {
            sys::leave_used_heap();
            spawner.serve(socket.as_fd());
            spawner.end();
            ExitCode::SUCCESS
        }
        Err(failure) => {
            let _gone = sys::send(socket.as_fd(), &failure.encode(from_spawner::FAILED), &[]);
            ExitCode::FAILURE
        }
    }
}

/// Takes over the connection to the server, which is passed as standard input: the one stream that
/// a process can inherit without code of ours between fork and exec.
fn take_socket() -> io::Result<OwnedFd> {
    let inherited = sys::adopt(0)?;
    let socket = inherited.try_clone()?;
    // Number 0 stays taken, by /dev/null, for as long as the process lives.
    let _zero = inherited.into_raw_fd();
    let null = sys::open(c"/dev/null", libc::O_RDWR)?;
    sys::dup_onto(null.as_fd(), 0)?;
    Ok(socket)
}

/// A place for one sandbox: its user ids and network namespaces are reused.
#[derive(Debug, Default)]
struct SandboxSlot {
    /// Network namespace without any interface that is up, not even a loopback.
    netns: Option<OwnedFd>,
    /// Network namespace with a loopback. Reused only if the last sandbox did not use it.
    connected_netns: Option<OwnedFd>,
    /// Maps the owners of files on disks and layers to the users of the slot.
    disk_users: Option<OwnedFd>,
    /// Standing control groups; made with the first sandbox.
    groups: Option<SlotGroups>,
    state: SlotState,
}

#[derive(Debug, Default)]
enum SlotState {
    #[default]
    Free,
    /// A sandbox runs in the slot.
    Live { sandbox: u64, pid: libc::pid_t, pidfd: OwnedFd, network: NetworkMode },
    /// The sandbox has ended, but the kernel still holds one of its groups.
    Clearing {
        sandbox: u64,
        /// The first command whose groups still exist.
        command: u32,
        /// Time at which the slot is retired.
        until: Duration,
    },
    /// Not used again, because its groups could not be removed.
    Retired,
}

/// Files with which a sandbox for commands begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum InitialFiles {
    /// None.
    #[default]
    Empty,
    /// Layers of disks, which the server names before the first command.
    Layers,
}

impl InitialFiles {
    pub(crate) fn number(self) -> u8 {
        match self {
            InitialFiles::Empty => 0,
            InitialFiles::Layers => 1,
        }
    }

    fn from_number(number: u8) -> Option<InitialFiles> {
        [InitialFiles::Empty, InitialFiles::Layers]
            .into_iter()
            .find(|files| files.number() == number)
    }
}

/// A requested sandbox.
#[derive(Clone, Copy, Debug)]
struct SandboxOrder {
    sandbox: u64,
    /// Index of the runtime that waits in it.
    runtime: Option<usize>,
    network: NetworkMode,
    initial_files: InitialFiles,
}

#[derive(Debug)]
struct SpawnerLoop {
    setup: SpawnerSetup,
    host_proc: OwnedFd,
    /// Pipe whose read end is in every sandbox; hung up when this process ends.
    lifeline: (OwnedFd, OwnedFd),
    parents: Vec<(HierarchyRole, OwnedFd)>,
    bases: Vec<OwnedFd>,
    /// For each of [`FilterSubject::ALL`].
    filters: [Vec<BpfInstruction>; FilterSubject::ALL.len()],
    landlock: bool,
    slots: Vec<SandboxSlot>,
    /// For each of `setup.runtimes`.
    zygotes: Vec<Zygotes>,
    /// Sandboxes requested while no slot was free, in order.
    queue: Vec<SandboxOrder>,
    networks: NetworkFactory,
}

impl SpawnerLoop {
    fn start(socket: BorrowedFd<'_>) -> Result<SpawnerLoop, StepFailure> {
        let mut buf = vec![0u8; 64 << 10];
        let (n, fds) = sys::receive(socket, &mut buf).step("read the setup")?;
        let setup = SpawnerSetup::decode(&mut MessageReader(buf.get(..n).unwrap_or(&[])))?;
        let mut fds = fds.into_iter();
        let parents: Vec<(HierarchyRole, OwnedFd)> =
            setup.roles.iter().copied().zip(fds.by_ref()).collect();
        let bases: Vec<OwnedFd> = fds.collect();

        sys::set_name(c"cove-spawner").step("name the spawner")?;
        sys::share_relocated().step("share what the loader relocated")?;
        // Ctrl-C goes to the whole foreground group; the spawner must outlive the server's drain.
        sys::setsid().step("leave the terminal")?;
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
            sys::ignore_signal(signal).step("ignore signals")?;
        }
        // Child processes inherit it. It only affects speed: an older kernel and a host that
        // forbids it keep their own slice.
        let _unchanged = sys::set_time_slice(TIME_SLICE);
        sys::umask(0o022);
        let rootless = setup.uid_base.is_none();
        if rootless {
            enter_user_namespace()?;
        }
        let host_proc = sys::open(c"/proc", libc::O_PATH | libc::O_DIRECTORY).step("open /proc")?;
        sys::unshare(libc::CLONE_NEWNS).step("make a mount namespace")?;
        let hooks = warm::hooks(&setup.runtimes);
        image::enter(&setup.toolchains, &setup.users(), !rootless, &hooks)?;
        if !setup.runtimes.is_empty() {
            // Capabilities that a zygote keeps when it is executed. A guest init gives them up with
            // all others.
            sys::set_inheritable(warm::capabilities()).step("provide for runtimes")?;
        }
        drop_bounding_set();
        let lifeline = sys::pipe().step("make a pipe")?;
        let abi = sys::landlock_abi().unwrap_or(0);
        let landlock = rootless && abi > 0;
        let slots = (0..setup.slots).map(|_| SandboxSlot::default()).collect();
        let filters = FilterSubject::ALL.map(seccomp::compile);
        let context = zygote_context(host_proc.as_fd(), &filters);
        let zygotes = setup.runtimes.iter().enumerate();
        let zygotes = zygotes.map(|(index, it)| Zygotes::start(index, it, context)).collect();
        let hello = MessageWriter::new(from_spawner::HELLO)
            .u32(if landlock { u32::try_from(abi).unwrap_or(0) } else { 0 })
            .finish();
        sys::send(socket, &hello, &[]).step("answer the server")?;
        Ok(SpawnerLoop {
            setup,
            host_proc,
            lifeline,
            parents,
            bases,
            filters,
            landlock,
            slots,
            zygotes,
            queue: Vec::new(),
            networks: NetworkFactory::default(),
        })
    }

    /// Serves until the server dies.
    fn serve(&mut self, socket: BorrowedFd<'_>) {
        let mut buf = [0u8; 64];
        loop {
            let clearing = self.slots.iter().any(|s| matches!(s.state, SlotState::Clearing { .. }));
            let mut watched = vec![socket];
            let mut owners = Vec::new();
            for (index, slot) in self.slots.iter().enumerate() {
                if let SlotState::Live { pidfd, .. } = &slot.state {
                    watched.push(pidfd.as_fd());
                    owners.push(index);
                }
            }
            watched.extend(self.zygotes.iter().flat_map(Zygotes::watched));
            let Ok(ready) = sys::poll(&watched, clearing.then_some(REMOVAL_INTERVAL)) else {
                return;
            };
            for (index, _) in owners.iter().zip(ready.iter().skip(1)).filter(|(_, ready)| **ready) {
                self.bury(*index);
            }
            for index in 0..self.slots.len() {
                self.clear(index, socket);
            }
            if ready.iter().skip(1 + owners.len()).any(|ready| *ready) {
                self.maintain();
            }
            if ready.first() == Some(&true) {
                match sys::receive(socket, &mut buf) {
                    Ok((0, _)) | Err(_) => return,
                    Ok((n, _)) => self.handle(buf.get(..n).unwrap_or(&[]), socket),
                }
            }
            self.fill(socket);
        }
    }

    fn handle(&mut self, message: &[u8], socket: BorrowedFd<'_>) {
        let mut r = MessageReader(message);
        match (r.u8(), r.u64()) {
            (Ok(to_spawner::PREPARE), Ok(sandbox)) => {
                let network = r.u8().ok().and_then(NetworkMode::from_number).unwrap_or_default();
                // 0 means no runtime.
                let runtime = r.u32().ok().and_then(|number| usize::try_from(number).ok());
                let runtime = runtime.and_then(|number| number.checked_sub(1));
                let initial_files =
                    r.u8().ok().and_then(InitialFiles::from_number).unwrap_or_default();
                self.queue.push(SandboxOrder { sandbox, runtime, network, initial_files });
            }
            (Ok(to_spawner::KILL), Ok(sandbox)) => self.kill(sandbox, socket),
            _ => {
                let failure = StepFailure::from(MalformedMessage).encode(from_spawner::FAILED);
                let _gone = sys::send(socket, &failure, &[]);
            }
        }
    }

    fn maintain(&mut self) {
        let context = zygote_context(self.host_proc.as_fd(), &self.filters);
        for zygotes in &mut self.zygotes {
            zygotes.maintain(context);
        }
    }

    fn kill(&mut self, wanted: u64, socket: BorrowedFd<'_>) {
        let waiting = self.queue.len();
        self.queue.retain(|order| order.sandbox != wanted);
        if self.queue.len() < waiting {
            let message = MessageWriter::new(from_spawner::GONE).u64(wanted).u8(0).finish();
            let _gone = sys::send(socket, &message, &[]);
        }
        for slot in &self.slots {
            if let SlotState::Live { sandbox, pidfd, .. } = &slot.state
                && *sandbox == wanted
            {
                // A process that is dead already needs no signal.
                let _dead = sys::kill_pidfd(pidfd.as_fd());
            }
        }
    }

    /// Starts queued sandboxes while slots are free.
    fn fill(&mut self, socket: BorrowedFd<'_>) {
        while !self.queue.is_empty() {
            let is_free = |index: &usize| {
                self.slots.get(*index).is_some_and(|slot| matches!(slot.state, SlotState::Free))
            };
            let free: Vec<usize> = (0..self.slots.len()).filter(is_free).collect();
            let Some((first, others)) = free.split_first() else { return };
            let order = self.queue.remove(0);
            let sandbox = order.sandbox;
            // A failure can be due to the slot: its network namespace, its standing groups.
            let prepared = others.iter().fold(self.prepare(*first, order), |tried, index| {
                tried.or_else(|_| self.prepare(*index, order))
            });
            let message = match prepared {
                Ok(control) => {
                    let message = MessageWriter::new(from_spawner::PREPARED).u64(sandbox).finish();
                    let _gone = sys::send(socket, &message, &[control.as_fd()]);
                    continue;
                }
                Err(failure) => MessageWriter::new(from_spawner::NOT_PREPARED)
                    .u64(sandbox)
                    .bytes(&failure.encode(0))
                    .finish(),
            };
            let _gone = sys::send(socket, &message, &[]);
        }
    }

    /// Starts the guest init of a sandbox and returns the server's end of its connection.
    fn prepare(&mut self, index: usize, order: SandboxOrder) -> Result<OwnedFd, StepFailure> {
        let sandbox = order.sandbox;
        let number = u32::try_from(index).unwrap_or(0);
        let users = self.setup.users_of(number);
        let slot = self.slots.get_mut(index).ok_or(MalformedMessage)?;
        let (is_session, has_loopback) =
            (order.network == NetworkMode::Session, order.network != NetworkMode::Nothing);
        let has_layers = order.initial_files == InitialFiles::Layers;
        let has_disk = is_session || has_layers;
        let place = if has_loopback { &mut slot.connected_netns } else { &mut slot.netns };
        if place.is_none() {
            // Creating one costs as much as all other steps together, so it stays with the slot. It
            // is empty again when the sandbox has ended: everything in it belonged to a process.
            *place = Some(self.networks.make(self.host_proc.as_fd(), has_loopback)?);
        }
        let netns = place.as_ref().ok_or(MalformedMessage)?;
        if let (true, None, Some(users)) = (has_disk, &slot.disk_users, users) {
            let mapped = disk::slot_users(self.host_proc.as_fd(), users.0, users.1);
            slot.disk_users = Some(mapped.step("map the owners of files on disks")?);
        }
        let standing_name = cgroup::standing_name(self.setup.index, number);
        let unified_limits = self.setup.unified_limits;
        if slot.groups.is_none() {
            let made = SlotGroups::create(&self.parents, unified_limits, &standing_name);
            slot.groups = Some(made.step("make the control groups of a slot")?);
        }
        let slot_groups = slot.groups.as_mut().ok_or(MalformedMessage)?;
        if !is_session {
            slot_groups
                .complete(&self.parents, &standing_name)
                .step("make the control groups of a slot")?;
        }
        let standing = slot_groups.standing();
        let for_first = if is_session { standing } else { slot_groups.for_command() };
        let (ours, theirs) = sys::message_pair().step("make a connection")?;
        let name = cgroup::group_name(self.setup.index, sandbox, 0);
        let groups = CommandGroups::create(&self.parents, for_first, unified_limits, &name)
            .step("make the control groups of a sandbox")
            .inspect_err(|_| {
                let _partial = CommandGroups::remove(&self.parents, unified_limits, &name);
            })?;
        let context = zygote_context(self.host_proc.as_fd(), &self.filters);
        let waiting = match order.runtime {
            None => None,
            Some(index) => {
                let runtime = self.setup.runtimes.get(index).ok_or(MalformedMessage)?;
                let zygotes = self.zygotes.get_mut(index).ok_or(MalformedMessage)?;
                let zygote = runtime.is_forked().then(|| zygotes.next(context)).transpose()?;
                Some(WaitingRuntime { runtime, index, zygote })
            }
        };
        let guest = GuestSetup {
            spawner: self.setup.index,
            sandbox,
            control: theirs,
            lifeline: self.lifeline.0.as_fd(),
            netns: netns.as_fd(),
            host_proc: self.host_proc.as_fd(),
            parents: &self.parents,
            standing,
            unified_limits,
            groups,
            users,
            filters: FilterSet(self.filters.each_ref().map(Vec::as_slice)),
            landlock: self.landlock,
            waiting,
            is_session,
            has_layers,
            disk_users: slot.disk_users.as_ref().filter(|_| has_disk).map(AsFd::as_fd),
            has_loopback,
        };
        let child = sys::fork(FRESH, None, || guest::main(guest))
            .step("start a guest init")
            .inspect_err(|_| {
                let _made_above = CommandGroups::remove(&self.parents, unified_limits, &name);
            })?;
        let network = order.network;
        slot.state = SlotState::Live { sandbox, pid: child.pid, pidfd: child.pidfd, network };
        Ok(ours)
    }

    /// Handles the end of a slot's guest init.
    fn bury(&mut self, index: usize) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        if let SlotState::Live { sandbox, pid, network, .. } = slot.state {
            let _known_to_have_ended = sys::wait_pid(pid);
            if network == NetworkMode::Session {
                // Frozen groups would never let a process of the next sandbox run.
                let _not_frozen = slot.groups.as_ref().map(SlotGroups::thaw);
            }
            if network != NetworkMode::Nothing {
                let netns = slot.connected_netns.take();
                slot.connected_netns =
                    netns.filter(|it| self.networks.is_unused(self.host_proc.as_fd(), it.as_fd()));
            }
            let until = now() + REMOVAL_TIMEOUT;
            slot.state = SlotState::Clearing { sandbox, command: 0, until };
        }
    }

    /// Removes the groups of an ended sandbox and frees its slot.
    fn clear(&mut self, index: usize, socket: BorrowedFd<'_>) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        let SlotState::Clearing { sandbox, mut command, until } = slot.state else { return };
        let standing = cgroup::standing_name(self.setup.index, u32::try_from(index).unwrap_or(0));
        let renewed = slot.groups.as_mut().map(|groups| groups.renew(&self.parents, &standing));
        let busy = renewed.unwrap_or(false)
            || loop {
                let name = cgroup::group_name(self.setup.index, sandbox, command);
                match CommandGroups::remove(&self.parents, self.setup.unified_limits, &name) {
                    // Continues with the next command; groups that were removed are not looked up
                    // again.
                    GroupRemoval::Done => command += 1,
                    GroupRemoval::Busy => break true,
                    // The first command's groups can be those of the slot.
                    GroupRemoval::Absent if command == 0 => command += 1,
                    GroupRemoval::Absent => break false,
                }
            };
        slot.state = match busy {
            false => SlotState::Free,
            true if now() >= until => SlotState::Retired,
            true => SlotState::Clearing { sandbox, command, until },
        };
        if !matches!(slot.state, SlotState::Clearing { .. }) {
            let retired = u8::from(matches!(slot.state, SlotState::Retired));
            let message = MessageWriter::new(from_spawner::GONE).u64(sandbox).u8(retired).finish();
            let _gone = sys::send(socket, &message, &[]);
        }
    }

    /// Ends all sandboxes and removes their groups.
    fn end(&mut self) {
        for slot in &self.slots {
            if let SlotState::Live { pidfd, .. } = &slot.state {
                let _dead = sys::kill_pidfd(pidfd.as_fd());
            }
        }
        for index in 0..self.slots.len() {
            self.bury(index);
        }
        for zygotes in &mut self.zygotes {
            zygotes.end();
        }
        // The server has died, so the announcements have no receiver; only the removals matter.
        let Ok((nobody, _)) = sys::message_pair() else { return };
        loop {
            for index in 0..self.slots.len() {
                self.clear(index, nobody.as_fd());
            }
            // Terminates: a slot that cannot be cleared is retired in time.
            if !self.slots.iter().any(|s| matches!(s.state, SlotState::Clearing { .. })) {
                break;
            }
            let _interval = sys::poll(&[], Some(REMOVAL_INTERVAL));
        }
        for slot in 0..self.setup.slots {
            let name = cgroup::standing_name(self.setup.index, slot);
            let _most_were_never_made = SlotGroups::remove(&self.parents, &name);
        }
        // Succeeds for the last spawner of the server; for the others it is in use or removed
        // already.
        if let Ok(name) = CString::new(self.setup.parent_name.as_str()) {
            for base in &self.bases {
                if sys::rmdirat(base.as_fd(), &name).is_ok() {
                    // The service manager removes the remains of a leaf.
                    let _best_effort = cgroup::leave_leaf(base.as_fd());
                }
            }
        }
    }
}

impl SpawnerSetup {
    /// Returns the user ids of a slot: the guest init's and the programs'.
    fn users_of(&self, slot: u32) -> Option<(u32, u32)> {
        self.uid_base.map(|base| {
            let first = base + 2 * (self.index * self.slots + slot);
            (first, first + 1)
        })
    }

    /// Returns the user ids of programs in all slots.
    fn users(&self) -> Vec<u32> {
        match self.uid_base {
            Some(_) => (0..self.slots)
                .filter_map(|slot| self.users_of(slot))
                .map(|(_, user)| user)
                .collect(),
            None => vec![ROOTLESS_USER],
        }
    }
}

/// Returns the context that zygotes are started with.
fn zygote_context<'a>(
    host_proc: BorrowedFd<'a>,
    filters: &'a [Vec<BpfInstruction>; FilterSubject::ALL.len()],
) -> ZygoteContext<'a> {
    let filters = FilterSet(filters.each_ref().map(Vec::as_slice));
    ZygoteContext {
        host_proc,
        filters: [FilterSubject::Run, FilterSubject::Connected].map(|it| filters.of(it)),
    }
}

/// Removes capabilities that no program started from here may ever gain. The spawner's own
/// permitted set stays: it executes nothing.
fn drop_bounding_set() {
    for capability in 0..=CAPABILITY_MAX {
        // Fails with EINVAL beyond the last capability of this kernel.
        if sys::prctl(libc::PR_CAPBSET_DROP, capability).is_err() {
            break;
        }
    }
}

/// Returns the time since boot; if the clock is not available, every deadline counts as passed.
fn now() -> Duration {
    sys::clock(KernelClock::Monotonic).unwrap_or(Duration::MAX / 2)
}

/// Enters a user namespace, which gives the rights to build a sandbox without root, but only inside
/// it. The caller is mapped to an ordinary user, never to 0: no program inside should believe that
/// it is root.
fn enter_user_namespace() -> Result<(), StepFailure> {
    let (uid, gid) = sys::effective_ids();
    sys::unshare(libc::CLONE_NEWUSER).step("make a user namespace")?;
    fs::write("/proc/self/setgroups", "deny").step("give up setting groups")?;
    fs::write("/proc/self/uid_map", format!("{ROOTLESS_USER} {uid} 1")).step("map the user")?;
    fs::write("/proc/self/gid_map", format!("{ROOTLESS_USER} {gid} 1")).step("map the group")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setup_survives_the_wire() {
        let setup = SpawnerSetup {
            index: 1,
            slots: 8,
            uid_base: Some(70_000),
            toolchains: vec![Toolchain { source: "/opt/x".into(), name: "x".into() }],
            runtimes: vec![WarmRuntime {
                name: "x".into(),
                kind: crate::spec::WarmKind::ForkPython,
                argv: vec![b"/usr/bin/x".to_vec(), b"main.x".to_vec()],
                env: vec![b"A=1".to_vec()],
                limits: crate::spec::ProgramLimits::default(),
                ready: 2,
                forks_max: 9,
            }],
            unified_limits: true,
            roles: vec![HierarchyRole::Unified, HierarchyRole::Pids],
            parent_name: "cove-1-2".into(),
        };
        let bytes = setup.encode();
        assert_eq!(SpawnerSetup::decode(&mut MessageReader(&bytes)).unwrap().encode(), bytes);
        assert!(SpawnerSetup::decode(&mut MessageReader(&bytes[..bytes.len() - 1])).is_err());
    }

    #[test]
    fn no_two_slots_share_a_user() {
        let setup = |index| SpawnerSetup {
            index,
            slots: 4,
            uid_base: Some(100),
            toolchains: vec![],
            runtimes: vec![],
            unified_limits: false,
            roles: vec![],
            parent_name: String::new(),
        };
        let mut all: Vec<u32> = (0..2)
            .flat_map(|i| (0..4).filter_map(move |s| setup(i).users_of(s)))
            .flat_map(|(a, b)| [a, b])
            .collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
