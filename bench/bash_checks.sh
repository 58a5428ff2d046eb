#!/bin/bash
# A bash node health check, as sites run before each job: 22 checks, one per line, for the nodes that match its pattern.
# It starts its own session, so that its watchdog can end all of it. `df`, `ps`, `dmesg` and the accounts are read once,
# into arrays, when a check first needs them. The first check that fails is printed, and the exit code is 1.
set -f
CHECKS='
* || mounted_rw /
* || mounted_rw /dev/shm tmpfs
* || mounted_rw /opt/dlami/scratch tmpfs
* || space_used / 95
* || space_used /dev/shm 50
* || inodes_used / 95
* || cpus 2 192
* || memory MemTotal 2000000000
* || memory MemFree 1000000
* || memory MemAvailable 4000000
gpu* || interface_up ens32
gpu* || rdma_ports 32
gpu* || gpus_on_bus 8
gpu* || module_loaded nvidia
gpu* || module_loaded efa
gpu* || daemon_runs slurmd root
gpu* || daemon_runs containerd root
* || none_in_state Z 20
* || load_average 400
* || kernel_log_without NVRM:*Xid
* || file_is /etc/passwd 644 root
* || up_for 120
'
limit_s=9
[[ $1 == begun ]] || exec setsid -w "$BASH" "$0" begun

declare -a mounts devices folders types options processes
declare -A owner state arguments name_of size_of_folder inodes_of_folder meminfo
read -r node </proc/sys/kernel/hostname

fail() {
    echo "ERROR: $*" >&2
    kill -- $watchdog 2>/dev/null
    exit 1
}

gather_mounts() {
    local device folder type option _
    while read -r device folder type option _; do
        devices+=("$device") folders+=("$folder") types+=("$type") options+=("$option")
    done </proc/mounts
}

gather_sizes() { # ARRAY FLAG
    local -n into=$1
    local device type size used free percent folder
    while read -r device type size used free percent folder; do
        into[$folder]=${percent%\%}
    done <<<"$(df -Ta"$2" 2>/dev/null)"
}

gather_accounts() {
    local name _ number
    while IFS=: read -r name _ number _; do name_of[$number]=$name; done <<<"$(getent passwd)"
}

gather_processes() {
    local user uid pid ppid stat cpu memory rss vsz args
    [[ ${#name_of[@]} -gt 0 ]] || gather_accounts
    while read -r user uid pid ppid stat cpu memory rss vsz args; do
        processes+=("$pid")
        owner[$pid]=${name_of[$uid]:-$user} state[$pid]=$stat arguments[$pid]=$args
    done <<<"$(COLUMNS=1024 ps axo user:32=,uid=,pid=,ppid=,stat=,pcpu=,pmem=,rss=,vsz=,args=)"
}

gather_memory() {
    local name value _
    while read -r name value _; do meminfo[${name%:}]=$value; done </proc/meminfo
}

mounted_rw() { # FOLDER [TYPE]
    local n
    [[ ${#folders[@]} -gt 0 ]] || gather_mounts
    for ((n = 0; n < ${#folders[@]}; n++)); do
        [[ ${folders[n]} == "$1" && ${types[n]} == "${2:-${types[n]}}" && ,${options[n]}, == *,rw,* ]] && return
    done
    fail "$1 is not mounted read-write"
}

space_used() { # FOLDER MOST_PERCENT
    [[ ${#size_of_folder[@]} -gt 0 ]] || gather_sizes size_of_folder k
    ((${size_of_folder[$1]:-100} <= $2)) || fail "$1 is ${size_of_folder[$1]} % full"
}

inodes_used() { # FOLDER MOST_PERCENT
    [[ ${#inodes_of_folder[@]} -gt 0 ]] || gather_sizes inodes_of_folder i
    ((${inodes_of_folder[$1]:-100} <= $2)) || fail "$1: ${inodes_of_folder[$1]} % of the inodes are used"
}

cpus() { # SOCKETS THREADS
    local key value threads=0
    local -A sockets
    while IFS=: read -r key value; do
        case $key in
            processor*) ((threads += 1)) ;;
            "physical id"*) sockets[${value# }]=1 ;;
        esac
    done </proc/cpuinfo
    ((${#sockets[@]} == $1 && threads == $2)) || fail "${#sockets[@]} sockets and $threads threads"
}

memory() { # FIELD LEAST_KIB
    [[ ${#meminfo[@]} -gt 0 ]] || gather_memory
    ((${meminfo[$1]:-0} >= $2)) || fail "$1 is ${meminfo[$1]} KiB"
}

interface_up() { # NAME
    local state=gone
    read -r state <"/sys/class/net/$1/operstate"
    [[ $state == up ]] || fail "$1 is $state"
}

rdma_ports() { # COUNT
    local file state count=0
    set +f
    for file in /sys/class/infiniband/*/ports/1/state; do
        read -r state <"$file"
        [[ $state == *ACTIVE ]] && ((count += 1))
    done
    set -f
    ((count == $1)) || fail "$count RDMA ports are active"
}

gpus_on_bus() { # COUNT
    local device vendor class count=0
    set +f
    for device in /sys/bus/pci/devices/*; do
        read -r vendor <"$device/vendor"
        read -r class <"$device/class"
        [[ $vendor == 0x10de && $class == 0x0302* ]] && ((count += 1))
    done
    set -f
    ((count == $1)) || fail "$count GPUs on the bus"
}

module_loaded() { # NAME
    [[ -d /sys/module/$1 ]] || fail "$1 is not loaded"
}

daemon_runs() { # NAME USER
    local pid
    [[ ${#processes[@]} -gt 0 ]] || gather_processes
    for pid in "${processes[@]}"; do
        [[ ${arguments[$pid]} == *"$1"* && ${owner[$pid]} == "$2" ]] && return
    done
    fail "$1 does not run"
}

none_in_state() { # STATE MOST
    local pid count=0
    [[ ${#processes[@]} -gt 0 ]] || gather_processes
    for pid in "${processes[@]}"; do [[ ${state[$pid]} == "$1"* ]] && ((count += 1)); done
    ((count <= $2)) || fail "$count processes in state $1"
}

load_average() { # MOST
    local one _
    read -r one _ </proc/loadavg
    ((${one%.*} <= $1)) || fail "load $one"
}

kernel_log_without() { # PATTERN
    local line
    while read -r line; do
        [[ $line == *$1* ]] && fail "kernel: $line"
    done <<<"$(dmesg 2>/dev/null)"
}

file_is() { # PATH MODE OWNER
    [[ $(stat -c "%a %U" "$1") == "$2 $3" ]] || fail "$1 is not $2 of $3"
}

up_for() { # LEAST_S
    local seconds _
    read -r seconds _ </proc/uptime
    ((${seconds%.*} >= $1)) || fail "up for $seconds s"
}

(
    trap 'kill $nap; exit' TERM
    sleep $limit_s &
    nap=$!
    wait $nap && kill -9 -- -$$
) >/dev/null 2>&1 &
watchdog=$!
count=0
while read -r pattern _ check; do
    # shellcheck disable=SC2053
    [[ $check && $node == $pattern ]] || continue
    ((count += 1))
    $check
done <<<"$CHECKS"
kill $watchdog 2>/dev/null
echo "$count checks pass"
