#!/bin/sh
# Installs Cove from a directory or an address with release archives, after checking their sums.
#
#   sh install.sh --from https://example.com/cove/v0.1.0
#   sh install.sh --from ./dist --prefix "$HOME/.local"
#   sh install.sh --uninstall
#
# It installs files below one prefix, starts nothing and changes no profile.
set -eu

usage() {
  cat << 'TEXT'
Usage: install.sh [--from PLACE] [--prefix DIRECTORY] [--version VERSION]
       install.sh --uninstall [--prefix DIRECTORY]

  --from PLACE         address or directory with SHA256SUMS and the archives
                       [default: COVE_RELEASES, or the directory of this script]
  --prefix DIRECTORY   where bin/cove and share/ go [default: /usr/local, or ~/.local if not root]
  --version VERSION    which version, where there are several
  --uninstall          remove what an installation below the prefix wrote, and nothing else;
                       data (/var/lib/cove) and configuration (/etc/cove) stay
TEXT
}

say() { printf '%s\n' "$*"; }
die() {
  printf 'install.sh: %s\n' "$*" >&2
  exit 1
}

from=${COVE_RELEASES:-}
prefix='' version='' uninstall=no
while [ $# -gt 0 ]; do
  case $1 in
    --from | --prefix | --version)
      [ $# -ge 2 ] || { usage >&2 && exit 2; }
      case $1 in
        --from) from=$2 ;;
        --prefix) prefix=$2 ;;
        --version) version=$2 ;;
      esac
      shift 2
      ;;
    --uninstall) uninstall=yes && shift ;;
    -h | --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
  esac
done
if [ -z "$prefix" ]; then
  if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=${HOME:?}/.local; fi
fi
list=$prefix/share/cove/installed-files

if [ "$uninstall" = yes ]; then
  [ -f "$list" ] || die "there is no installation of this script below $prefix (no $list)"
  while IFS= read -r file; do
    # Nothing outside of the prefix, whatever the list says.
    case $file in /* | *..*) die "$list names \`$file\`, which is not below $prefix" ;; esac
    rm -f "$prefix/$file"
  done < "$list"
  rm -f "$list"
  for directory in share/cove/monitoring share/cove share/doc/cove share/man/man1 \
    share/bash-completion/completions share/zsh/site-functions share/fish/vendor_completions.d bin; do
    rmdir "$prefix/$directory" 2> /dev/null || true
  done
  say "removed Cove from $prefix"
  exit 0
fi

[ "$(uname -s)" = Linux ] || die "Cove needs Linux; this is $(uname -s)"
case $(uname -m) in
  x86_64 | amd64) target=x86_64-unknown-linux-gnu ;;
  aarch64 | arm64) target=aarch64-unknown-linux-gnu ;;
  *) die "there is no archive for $(uname -m), only for x86_64 and aarch64" ;;
esac
if [ ! -e /lib64/ld-linux-x86-64.so.2 ] && [ ! -e /lib/ld-linux-aarch64.so.1 ]; then
  die "Cove needs the GNU C library; this system has another one (musl?)"
fi

[ -n "$from" ] || from=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# fetch NAME FILE
fetch() {
  case $from in
    http://* | https://*)
      if command -v curl > /dev/null 2>&1; then
        curl -fsSL --proto '=http,https' -o "$2" "$from/$1" || die "failed to fetch $from/$1"
      elif command -v wget > /dev/null 2>&1; then
        wget -q -O "$2" "$from/$1" || die "failed to fetch $from/$1"
      else
        die "neither curl nor wget is installed"
      fi
      ;;
    *) cp "$from/$1" "$2" || die "there is no $1 in $from" ;;
  esac
}

fetch SHA256SUMS "$work/SHA256SUMS"
pattern="cove-${version:-[0-9][^ ]*}-$target.tar.gz"
archive=$(sed -n "s/^[0-9a-f]\{64\}  \($pattern\)\$/\1/p" "$work/SHA256SUMS" | tail -n 1)
[ -n "$archive" ] || die "$from has no archive of ${version:-any version} for $target"
fetch "$archive" "$work/$archive"
expected=$(sed -n "s/^\([0-9a-f]\{64\}\)  $archive\$/\1/p" "$work/SHA256SUMS")
if command -v sha256sum > /dev/null 2>&1; then
  actual=$(sha256sum "$work/$archive" | cut -d ' ' -f 1)
else
  actual=$(shasum -a 256 "$work/$archive" | cut -d ' ' -f 1)
fi
[ "$actual" = "$expected" ] \
  || die "the SHA-256 of $archive is $actual, and SHA256SUMS says $expected: not installed"

tar -xzf "$work/$archive" -C "$work"
unpacked=$work/${archive%.tar.gz}
# A binary that does not run here is not installed.
"$unpacked/cove" version > /dev/null || die "the binary of $archive does not run here"

mkdir -p "$prefix/share/cove"
: > "$work/list"
# put FILE DESTINATION-BELOW-PREFIX MODE: beside it first, so that a running binary is replaced whole.
put() {
  mkdir -p "$prefix/$(dirname "$2")"
  cp "$1" "$prefix/$2.new"
  chmod "$3" "$prefix/$2.new"
  mv -f "$prefix/$2.new" "$prefix/$2"
  printf '%s\n' "$2" >> "$work/list"
}
put "$unpacked/cove" bin/cove 755
for page in "$unpacked"/man/*.gz; do
  put "$page" "share/man/man1/$(basename "$page")" 644
done
put "$unpacked/completions/cove.bash" share/bash-completion/completions/cove 644
put "$unpacked/completions/_cove" share/zsh/site-functions/_cove 644
put "$unpacked/completions/cove.fish" share/fish/vendor_completions.d/cove.fish 644
for file in LICENSE README.md CHANGELOG.md operations.md THIRD-PARTY-LICENCES.txt cove.cdx.json; do
  put "$unpacked/$file" "share/doc/cove/$file" 644
done
for file in "$unpacked/cove.toml" "$unpacked"/systemd/*.service; do
  put "$file" "share/cove/$(basename "$file")" 644
done
for file in "$unpacked"/monitoring/*; do
  put "$file" "share/cove/monitoring/$(basename "$file")" 644
done
mv "$work/list" "$list"

say "installed $("$prefix/bin/cove" version) in $prefix/bin"
case :$PATH: in
  *:"$prefix/bin":*) command=cove ;;
  *) command=$prefix/bin/cove && say "note: $prefix/bin is not in PATH" ;;
esac
say "next: $command doctor        what this machine offers for isolation"
say "      $command serve         start the server, and see what to try"
say "      units for systemd are in $prefix/share/cove; sh install.sh --uninstall removes all"
