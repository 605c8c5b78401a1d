#!/usr/bin/env bash
# Installs what the tests need and this machine lacks, as Debian packages. Quick when all is there:
# then it only looks. It never replaces a tool that is already installed, wherever it came from.
set -euo pipefail

# A build takes some 9 GB, the tests' databases and tools 5 GB more.
readonly NEEDED_GB=14
free_gb=$(($(df --output=avail -k . | tail -n 1) / 1024 / 1024))
if [ ! -d target ] && [ "$free_gb" -lt "$NEEDED_GB" ]; then
  echo "warning: only $free_gb GB are free here; build and tests take some $NEEDED_GB GB" >&2
fi

missing=()

# need PACKAGE COMMAND...: the package is missing unless all commands are there.
need() {
  local package=$1
  shift
  for tool in "$@"; do
    if ! command -v "$tool" > /dev/null 2>&1; then
      missing+=("$package")
      return
    fi
  done
}

# Toolchains outside of PATH count: the server looks in the same places.
PATH=$PATH:/usr/local/go/bin:/usr/lib/go/bin:$HOME/.cargo/bin

need gcc gcc
need g++ g++
need curl curl
need default-jdk-headless java javac
need golang-go go
need nodejs node
# Installs BullMQ, as the Redis queue is tested with.
need npm npm
# Opens the console.
need chromium chromium
# What makes JavaScript of TypeScript.
need esbuild esbuild
# The store's other engine, the queue's other back end, and certificates for both. Debian keeps the
# programs of PostgreSQL beside PATH.
[ -n "$(compgen -G '/usr/lib/postgresql/*/bin/postgres')" ] || need postgresql postgres initdb psql
need redis-server redis-server
# MariaDB, without what would make a service of it; beside PATH for whoever is not root.
[ -x /usr/sbin/mariadbd ] || need mariadb-server-core mariadbd
need mariadb-client-core my_print_defaults
# Brings a newer MariaDB.
need maven mvn
need openssl openssl
# Starts them without privileges.
need util-linux setpriv nsenter unshare
# Makes the network of the machines that several servers are on; beside PATH for whoever is not root.
[ -x /usr/sbin/ip ] || need iproute2 ip
# Balances between several servers.
[ -x /usr/sbin/haproxy ] || need haproxy haproxy
# Makes the disks of sessions; Debian keeps it beside PATH.
[ -x /usr/sbin/mkfs.ext4 ] || need e2fsprogs mkfs.ext4
# Checks the alerts that packages ship.
need prometheus promtool
# Makes packages, and the system that they are installed into; beside PATH for whoever is not root.
need rpm rpmbuild
need binutils strip
[ -x /usr/sbin/debootstrap ] || need debootstrap debootstrap
need systemd systemd-analyze
# What completions are tried with.
need zsh zsh
need fish fish
need man-db man
# What programs of sessions are tried with.
need git git
need procps ps
# Clients of Piston and Judge0, and a service like S3, are installed into environments of their own.
python3 -c 'import pip, venv' > /dev/null 2>&1 || missing+=(python3 python3-pip python3-venv)
# A sandbox shows /usr; an interpreter in a home directory is not what the tests are about.
[ -x /usr/bin/python3 ] || missing+=(python3)
# Installs packages in builds of templates.
[ -x /usr/bin/pip3 ] || missing+=(python3-pip)
# Drivers of databases, as programs in sandboxes have them.
/usr/bin/python3 -c "import psycopg2, pymysql" > /dev/null 2>&1 || missing+=(python3-psycopg2 python3-pymysql)
# What notebooks show figures with.
/usr/bin/python3 -c "import matplotlib" > /dev/null 2>&1 || missing+=(python3-matplotlib)
# What the code interpreter imports where it is installed. Debian's, because a sandbox shows /usr.
/usr/bin/python3 -c "import IPython, numpy, pandas, matplotlib, PIL" > /dev/null 2>&1 \
  || missing+=(python3-ipython python3-numpy python3-pandas python3-matplotlib python3-pil)
# A driver of PostgreSQL for Java.
[ -e /usr/share/java/postgresql.jar ] || missing+=(libpostgresql-jdbc-java)
# One of MariaDB.
[ -e /usr/share/java/mariadb-java-client.jar ] || missing+=(libmariadb-java)
# Servers whose clocks are wrong.
[ -e /usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1 ] || missing+=(libfaketime)
# The header of the C library, not just the compiler.
[ -e /usr/include/stdio.h ] || missing+=(libc6-dev)

if [ ${#missing[@]} -eq 0 ]; then
  echo "nothing to install"
  exit 0
fi
if ! command -v apt-get > /dev/null 2>&1; then
  echo "please install: ${missing[*]}" >&2
  exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  as_root=(sudo)
fi
echo "installing: ${missing[*]}"
"${as_root[@]}" apt-get update -qq
DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"
