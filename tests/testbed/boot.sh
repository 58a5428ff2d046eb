#!/bin/sh
# Process 1 of a fake node: builds its root in a separate mount namespace, then waits until it is told to end.
# boot.sh NAME LIFELINE FROZEN HUNG DAEMONS ROOT_PERCENT BENEATH, with an archive on standard input. LIFELINE is a
# file descriptor: the node ends when it is closed. BENEATH is the folder that its own files overlay.
set -e
umask 022
exec 2>&1 3<"/proc/self/fd/$2"
read -r pid _ </proc/self/stat # the process id outside, as this /proc is still the outer one

built=/mnt # any folder: the mount is only visible in here
mount -t tmpfs -o mode=755 testbed $built
cd $built
mkdir upper work root beneath
mount --bind "$7" beneath
tar -x -p
echo "$1" >/proc/sys/kernel/hostname
ip link set lo up # it is up already if the network is shared

number=0
for path in $3; do
    truncate -s 8M frozen$number
    mkfs.ext4 -q -F -O ^has_journal frozen$number
    number=$((number + 1))
done
sed -i "s|@|$built|g" table
mount -a -T table
fd=4
for hung in $4; do
    eval "exec $fd<>/dev/fuse" # kept open; only slow_mount ever answers
    mount -i -t "${hung#*=}" -o fd=$fd,rootmode=40000,user_id=0,group_id=0 testbed "root${hung%%=*}"
    fd=$((fd + 1))
done
if [ "$6" -gt 0 ]; then
    used_kib=$(du -skx . | cut -f1)
    size_kib=102400
    fallocate -l $((size_kib * $6 / 100 - used_kib - 256))KiB root/var/filled
    mount -o remount,size=${size_kib}k $built
fi
cd /
export pid FROZEN="$3" DAEMONS="$5" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
exec chroot $built/root /bin/sh -e -c '
    [ -e /etc/ld.so.cache ] || { ldconfig -X 2>/dev/null && rm -r /var/cache/ldconfig; } # as done when libraries are installed
    [ ! -x /usr/lib/testbed/slow_mount ] || /usr/lib/testbed/slow_mount <&4 >/dev/null 2>&1 3<&- &
    [ ! -x /usr/lib/testbed/ticks ] || /usr/lib/testbed/ticks </dev/null >/dev/null 2>&1 3<&- &
    for daemon in $DAEMONS; do
        "/usr/sbin/$daemon" </dev/null 3<&- &
        while [ ! -s "/run/$daemon.pid" ]; do sleep 0.005; done
    done
    for path in $FROZEN; do fsfreeze -f "$path"; done
    echo "ready $pid"
    exec </dev/null >/dev/null 2>&1
    cat <&3 &
    wait $! || : # meanwhile the shell reaps orphans
    for path in $FROZEN; do fsfreeze -u "$path" || :; done
'
