//! Packages: built from this binary, installed into a separate system, started, used and removed.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use testkit::{Host, Scratch, Watch};

use crate::support::{COVE, SOON, alone_on_host, beside_others};

/// Debian release that packages are installed into: the supported one with the oldest C library.
const SUITE: &str = "bookworm";

/// Enters the system below `$1`, with `/sys`, `/proc` and `/dev` as on a real machine. It does not
/// use chroot(2), because a process in a chroot cannot create user namespaces, which map the owners
/// of files on disks.
const ENTER: &str = "set -e; root=$1; shift
    mount --make-rprivate /; mount --bind $root $root; mount --rbind /sys $root/sys
    mount -t proc proc $root/proc; mount --rbind /dev $root/dev
    cd $root; pivot_root . .; umount --lazy .; cd /; exec \"$@\"";

fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().and_then(Path::parent).unwrap()
}

fn finished(command: &mut Command) -> Output {
    let output = command.output().expect("a command that starts");
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the packages of this binary, built once for all tests. `TEST_PACKAGES` names a directory
/// of others, such as those of `make dist`.
fn packages() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        if let Some(directory) = std::env::var_os("TEST_PACKAGES") {
            return PathBuf::from(directory);
        }
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
        drop(fs::remove_dir_all(&out));
        let script = checkout().join("packaging/package");
        finished(Command::new(script).args(["--binary", COVE, "--fast", "--out"]).arg(&out));
        out
    })
}

/// Returns the only package of a kind.
fn package(extension: &str) -> PathBuf {
    let entries = fs::read_dir(packages()).unwrap().map(|entry| entry.unwrap().path());
    let mut found = entries.filter(|path| path.to_string_lossy().ends_with(extension));
    let only = found.next().expect("a package");
    assert_eq!(found.next(), None);
    only
}

/// Returns a small Debian system, which is built once and copied.
fn debian() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("debian-{SUITE}"));
        // This file is written last.
        if !root.join("made").is_file() {
            drop(fs::remove_dir_all(&root));
            let mut targets = Command::new("apt-get");
            let targets = finished(targets.args(["indextargets", "--format", "$(REPO_URI)"]));
            let mirror = text(&targets).lines().next().expect("a mirror of Debian").to_owned();
            let mut debootstrap = Command::new("debootstrap");
            debootstrap.args(["--variant=minbase", "--include=adduser,procps", SUITE]);
            finished(debootstrap.arg(&root).arg(mirror).env("PATH", PATH_OF_ROOT));
            fs::write(root.join("made"), "").unwrap();
        }
        root
    })
}

/// Search path with the directories of root's tools, regardless of the user who runs the tests.
const PATH_OF_ROOT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// System that a package is installed into.
struct InstalledSystem {
    _scratch: Scratch,
    root: PathBuf,
}

impl InstalledSystem {
    fn new(extension: &str) -> InstalledSystem {
        let scratch = Scratch::new();
        let root = scratch.path().join("root");
        finished(Command::new("cp").arg("-a").arg(debian()).arg(&root));
        fs::copy(package(extension), root.join("tmp/package")).unwrap();
        InstalledSystem { _scratch: scratch, root }
    }

    /// Returns a command of the system in separate namespaces. All processes that it starts end
    /// with it.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER, "enter"]);
        command.arg(&self.root).args(arguments).env("PATH", PATH_OF_ROOT);
        command.env("LC_ALL", "C").env_remove("NOTIFY_SOCKET");
        command
    }

    fn run(&self, arguments: &[&str]) -> String {
        text(&finished(&mut self.command(arguments)))
    }

    /// Returns all files except the state of package tools and account tools.
    fn files(&self) -> BTreeSet<String> {
        let listed = finished(Command::new("find").arg(".").current_dir(&self.root));
        let own = ["./var/lib/dpkg/", "./var/log/", "./root/", "./run/", "./etc/"];
        let is_kept = |line: &&str| {
            !own.iter().any(|it| line.starts_with(it)) || line.starts_with("./etc/cove")
        };
        text(&listed).lines().filter(is_kept).map(str::to_owned).collect()
    }

    /// Starts the server as its unit does, uses it as a user would, and stops it.
    fn serve_and_use(&self) {
        let unit = self.root.join("usr/lib/systemd/system/cove.service");
        let unit = fs::read_to_string(unit).unwrap();
        let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        let notify = UnixDatagram::bind(self.root.join("run/notify")).unwrap();
        notify.set_read_timeout(Some(SOON)).unwrap();
        let notification = || {
            let mut buffer = [0; 256];
            let length = notify.recv(&mut buffer).expect("word of the server");
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        };
        let script = format!(
            "export COVE_HTTP=127.0.0.1:0 COVE_BOUNCER__ENABLED=false; {start} & server=$!
             trap 'kill $server; wait $server' EXIT
             read -r go < /run/go
             cove exec submit --wait --json -- /bin/echo from a package
             cove catalog namespace create shop && cove catalog namespace list
             cove session create --json"
        );
        finished(Command::new("mkfifo").arg(self.root.join("run/go")));
        let mut server = self.command(&["sh", "-ec", &script]);
        server.env("NOTIFY_SOCKET", "/run/notify");
        server.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = RunningSystem(server.spawn().unwrap());
        assert!(notification().starts_with("READY=1"));
        fs::write(self.root.join("run/go"), "go\n").unwrap();
        assert!(notification().starts_with("STOPPING=1"));
        let (mut answers, mut errors) = (String::new(), String::new());
        running.0.stdout.take().unwrap().read_to_string(&mut answers).unwrap();
        running.0.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert!(running.0.wait().unwrap().success(), "{answers}\n{errors}");
        for expected in ["from a package", "created shop", "\"ses_"] {
            assert!(answers.contains(expected), "{expected}: {answers}\n{errors}");
        }
        assert!(!errors.contains("#c="), "a code in the log of a service: {errors}");
    }
}

/// Command of a system, killed on drop together with all processes that it has started.
struct RunningSystem(Child);

impl Drop for RunningSystem {
    fn drop(&mut self) {
        // It has ended already, unless the test has failed.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Asserts that a system has the files of every package at the paths where it searches for them.
fn assert_complete(system: &InstalledSystem, completions_of_zsh: &str) {
    for path in [
        "usr/bin/cove",
        "usr/share/man/man1/cove.1.gz",
        "usr/share/man/man1/cove-session-create.1.gz",
        "usr/share/bash-completion/completions/cove",
        "usr/share/fish/vendor_completions.d/cove.fish",
        completions_of_zsh,
        "usr/share/doc/cove/THIRD-PARTY-LICENCES.txt",
        "usr/lib/systemd/system/cove-bouncer.service",
        "usr/share/cove/monitoring/cove.dashboard.json",
        "usr/share/cove/monitoring/cove.rules.yml",
        "usr/share/doc/cove/operations.md",
    ] {
        assert!(system.root.join(path).is_file(), "{path}");
    }
    let mode = fs::metadata(system.root.join("etc/cove/cove.toml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640, "passwords stand there");
    let bill = fs::read(system.root.join("usr/share/doc/cove/cove.cdx.json")).unwrap();
    let bill: Value = serde_json::from_slice(&bill).unwrap();
    assert!(bill["components"].as_array().unwrap().len() > 100);
}

#[test]
fn units_are_what_the_service_manager_understands() {
    let _guard = beside_others();
    let scratch = Scratch::new();
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]);
    for unit in ["cove.service", "cove-bouncer.service", "cove-catalog.service"] {
        let packaged = fs::read_to_string(checkout().join("packaging/systemd").join(unit)).unwrap();
        assert!(packaged.contains("ExecStart=/usr/bin/cove "), "{unit}");
        verify.arg(scratch.file(unit, packaged.replace("/usr/bin/cove ", &format!("{COVE} "))));
    }
    let verified = verify.output().unwrap();
    let complaints = String::from_utf8_lossy(&verified.stderr).into_owned();
    // Versions of systemd before 254 report `DelegateSubgroup` as unknown, and ignore it.
    let ours = complaints.lines().filter(|it| it.contains("cove") && !it.contains("Subgroup"));
    assert_eq!(ours.collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn a_package_of_debian_is_installed_started_used_and_purged() {
    let _guard = alone_on_host();
    let system = InstalledSystem::new(".deb");
    let (before, host) = (system.files(), Host::snapshot(&Watch::default()));
    let output = system.run(&["dpkg", "-i", "/tmp/package"]);
    assert!(output.contains("systemctl enable --now cove"), "{output}");
    assert_complete(&system, "usr/share/zsh/vendor-completions/_cove");
    assert_eq!(system.run(&["stat", "-c", "%U:%G", "/etc/cove/cove.toml"]), "root:cove\n");
    assert!(system.run(&["cove", "doctor"]).contains("Untrusted code can be run here"));
    system.serve_and_use();
    // Installing the same version again is an upgrade: configuration and data are kept.
    fs::write(system.root.join("etc/cove/cove.toml"), "drain_s = 7\n").unwrap();
    system.run(&["dpkg", "-i", "--force-confold", "/tmp/package"]);
    assert_eq!(fs::read(system.root.join("etc/cove/cove.toml")).unwrap(), b"drain_s = 7\n");
    assert!(system.run(&["cove", "token"]).len() > 20, "its token is still there");
    system.run(&["dpkg", "-r", "cove"]);
    assert!(system.root.join("var/lib/cove/cove.sqlite").is_file(), "removing is not purging");
    system.run(&["dpkg", "-P", "cove"]);
    assert!(!system.run(&["cat", "/etc/passwd"]).contains("cove"));
    assert_eq!(system.files(), before);
    host.wait_for_return(SOON);
}

#[test]
fn a_package_of_rpm_is_installed_started_used_and_erased() {
    let _guard = alone_on_host();
    let system = InstalledSystem::new(".rpm");
    let (before, host) = (system.files(), Host::snapshot(&Watch::default()));
    // `rpm` is the host's and does not know the packages of the system.
    let rpm = |arguments: &[&str]| {
        let mut command = Command::new("rpm");
        finished(command.arg("--root").arg(&system.root).arg("--nodeps").args(arguments))
    };
    rpm(&["-i", system.root.join("tmp/package").to_str().unwrap()]);
    assert_complete(&system, "usr/share/zsh/site-functions/_cove");
    assert_eq!(system.run(&["stat", "-c", "%U:%G", "/etc/cove/cove.toml"]), "root:cove\n");
    system.serve_and_use();
    assert_eq!(text(&rpm(&["-V", "cove"])), "", "nothing is changed by running it");
    rpm(&["-e", "cove"]);
    fs::remove_dir_all(system.root.join("var/lib/cove")).unwrap();
    assert_eq!(system.files(), before);
    host.wait_for_return(SOON);
}

#[test]
fn the_script_installs_an_archive_after_its_sum_and_removes_it() {
    let _guard = beside_others();
    let scratch = Scratch::new();
    let (from, prefix) = (scratch.path().join("releases"), scratch.path().join("prefix"));
    fs::create_dir(&from).unwrap();
    let archive = package(".tar.gz");
    for file in [archive.as_path(), &packages().join("SHA256SUMS"), &packages().join("install.sh")]
    {
        fs::copy(file, from.join(file.file_name().unwrap())).unwrap();
    }
    let install = |more: &[&str]| {
        let mut command = Command::new("sh");
        command.arg(from.join("install.sh")).arg("--prefix").arg(&prefix).args(more);
        command.env_remove("COVE_RELEASES").output().unwrap()
    };
    let installed = install(&[]);
    assert!(installed.status.success(), "{installed:?}");
    assert!(text(&installed).contains("is not in PATH"), "{installed:?}");
    let version = finished(Command::new(prefix.join("bin/cove")).arg("version"));
    assert_eq!(text(&version), format!("cove {}\n", env!("CARGO_PKG_VERSION")));
    assert!(prefix.join("share/man/man1/cove-run.1.gz").is_file());

    // Files that do not belong to the installation are not removed.
    fs::write(prefix.join("share/man/man1/other.1"), "").unwrap();
    assert!(install(&["--uninstall"]).status.success());
    let left = finished(Command::new("find").arg(&prefix).args(["-type", "f"]));
    assert_eq!(text(&left), format!("{}\n", prefix.join("share/man/man1/other.1").display()));
    let again = install(&["--uninstall"]);
    assert!(!again.status.success());
    assert!(String::from_utf8_lossy(&again.stderr).contains("no installation"), "{again:?}");

    // An archive that is one byte too long is not installed.
    let damaged = from.join(archive.file_name().unwrap());
    let mut bytes = fs::read(&damaged).unwrap();
    bytes.push(0);
    fs::write(&damaged, bytes).unwrap();
    let refused = install(&[]);
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && errors.contains("not installed"), "{errors}");
    assert!(!prefix.join("bin").exists());
    let unknown = install(&["--version", "9.9.9"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("has no archive of 9.9.9"));
}

#[test]
fn cargo_binstall_finds_the_binary_in_the_archive() {
    let _guard = beside_others();
    let manifest = fs::read_to_string(checkout().join("crates/cove/Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    let settings = &manifest["package"]["metadata"]["binstall"];
    let filled = |setting: &str| {
        let template = settings[setting].as_str().unwrap();
        let values = [
            ("{ version }", env!("CARGO_PKG_VERSION")),
            ("{ target }", "x86_64-unknown-linux-gnu"),
            ("{ bin }", "cove"),
            ("{ binary-ext }", ""),
        ];
        values.iter().fold(template.to_owned(), |text, (name, value)| text.replace(name, value))
    };
    let archive = package(".tar.gz");
    let name = archive.file_name().unwrap().to_str().unwrap();
    assert!(filled("pkg-url").ends_with(&format!("/{name}")), "{}", filled("pkg-url"));
    let binary = filled("bin-dir");
    finished(Command::new("tar").arg("-tzf").arg(&archive).arg(&binary));
}

#[test]
fn shells_complete_commands_and_man_shows_them() {
    let _guard = beside_others();
    let scratch = Scratch::new();
    let cove = |arguments: &[&str]| finished(testkit::command(COVE).args(arguments)).stdout;
    let bash = scratch.file("cove.bash", cove(&["completions", "bash"]));
    // Bash makes this call when a user types `cove ses` and a tab.
    let script = "source $1; COMP_WORDS=(cove ses); COMP_CWORD=1; _cove cove ses cove
        echo ${COMPREPLY[@]}";
    let typed = finished(Command::new("bash").args(["-c", script, "bash"]).arg(&bash));
    assert_eq!(text(&typed), "session\n");
    let fish = scratch.file("cove.fish", cove(&["completions", "fish"]));
    let script = "source $argv[1]; complete --do-complete 'cove ses'";
    let home = scratch.path();
    let mut command = Command::new("fish");
    let typed = finished(command.args(["-c", script]).arg(&fish).env("HOME", home));
    assert!(text(&typed).starts_with("session\t"), "{}", text(&typed));
    let zsh = scratch.file("_cove", cove(&["completions", "zsh"]));
    finished(Command::new("zsh").arg("-n").arg(&zsh));

    let pages = scratch.path().join("man1");
    finished(testkit::command(COVE).args(["man", "--directory"]).arg(&pages));
    let mut man = Command::new("man");
    man.args(["-l", "--warnings"]).arg(pages.join("cove-run.1"));
    let page = finished(man.env("MANWIDTH", "100").env("LC_ALL", "C.UTF-8"));
    assert!(text(&page).contains("COVE-RUN(1)") || text(&page).contains("cove-run(1)"));
    assert!(fs::read_dir(&pages).unwrap().count() > 100, "a page for each command");
}
