#!/bin/sh
# machine.sh DIRECTORY NODE RUN MANIFESTS ENVOY [CGROUPS OWN]   Becomes a systemd that is process 1 of a node of its own.
#
# Runs in new pid, mount, cgroup, uts and ipc namespaces (unshare).  NOTHING of the machine we are on may be within
# reach: a systemd that starts clears /tmp, sets the host's name and more.  So its root is a read-only view of the
# file system alone (no mount below it), /tmp, /var/tmp, /run and /dev are new, and the old root is gone before
# systemd is there.  Only NODE, the test's own directory, can be written.  It knows no units but those in
# DIRECTORY/units and what `make install` put below DIRECTORY/dest.
#
# For redirection there is a bpffs of its own, as a systemd that is in no container mounts it, and, to look at, the
# cgroups of all (CGROUPS) at /run/cgroup: programs count their levels from the real root.  Only its OWN can be written.
set -eu
dir=$1 node=$2 run=$3 manifests=$4 envoy=$5 cgroups=${6:-} own=${7:-}
mount --make-rprivate /
root=$dir/root
mkdir -p "$root" "$dir/etc" "$dir/work" "$dir/generators"
mount --bind / "$root"
mount -o remount,bind,ro "$root"
for d in tmp var/tmp run dev; do mount -t tmpfs -o mode=755 tmpfs "$root/$d"; done
chmod 1777 "$root/tmp" "$root/var/tmp"
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mkdir "$root/dev/shm" "$root/dev/pts" "$root/dev/mqueue" "$root/dev/hugepages"
mount -t devpts -o newinstance devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
for d in null zero full random urandom tty; do
	touch "$root/dev/$d"
	mount --bind "/dev/$d" "$root/dev/$d"
done
mkdir -p "$root/$node"
mount --bind "$node" "$root/$node"
mount -t overlay -o "lowerdir=/etc,upperdir=$dir/etc,workdir=$dir/work" overlay "$root/etc"
mount -t overlay -o "lowerdir=$dir/dest/usr/local:/usr/local" overlay "$root/usr/local"
# Wherever it lies: a unit sees neither /tmp nor homes of others.
mount --bind "$envoy" "$root/usr/local/bin/envoy"
mkdir -p "$root/run/systemd/system" "$root/run/lock" "$root/run/netns" "$root/run/agentd" "$root/etc/agentd/pods.d"
for ns in "$dir"/netns/*; do
	[ -L "$ns" ] || continue
	touch "$root/run/netns/${ns##*/}"
	mount --bind "$(readlink "$ns")" "$root/run/netns/${ns##*/}"
done
if [ -n "$cgroups" ]; then
	mount -t bpf -o mode=700 bpf "$root/sys/fs/bpf"
	mkdir "$root/run/cgroup"
	mount --bind "$cgroups" "$root/run/cgroup"
	mount -o remount,bind,ro "$root/run/cgroup"
	mount --bind "$cgroups/$own" "$root/run/cgroup/$own"
fi
mount --bind "$run" "$root/run/agentd"
mount --bind "$manifests" "$root/etc/agentd/pods.d"
cd "$root"
pivot_root . .
umount -l .
cd /
# Only what we mounted can be written, and the cgroup is not that of all.  Seen to before anything is started.
if touch /check 2>/dev/null || touch /var/check 2>/dev/null || ! [ -d "$dir/units" ] || ! [ -e /sys/fs/cgroup/cgroup.type ] ||
	{ [ -n "$cgroups" ] && mkdir /run/cgroup/check 2>/dev/null; } ||
	[ "$(stat -f -c %T /tmp)" != tmpfs ] || [ "$(find /tmp -maxdepth 1 -mindepth 1 | wc -l)" -gt 1 ]; then
	echo "machine.sh: this is not a machine of its own" >&2
	exit 1
fi
systemd-sysusers agentd.conf
exec env -i PATH="$PATH" container=agentd-test "SYSTEMD_UNIT_PATH=$dir/units:/usr/local/lib/systemd/system" \
	"SYSTEMD_GENERATOR_PATH=$dir/generators" "SYSTEMD_ENVIRONMENT_GENERATOR_PATH=$dir/generators" \
	/lib/systemd/systemd --system --unit=node.target --log-target=console --show-status=no
