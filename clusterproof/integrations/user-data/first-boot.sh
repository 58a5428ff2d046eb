#!/bin/sh
# User data of an instance: checks the node once, after its first boot has ended, logs under /var/log/clusterproof, and
# notifies an SNS topic of anything but a pass. It holds up nothing: cloud-init goes on, the check runs in a unit of its
# own. Fill in the four lines; the instance's role needs sns:Publish on the topic, and s3:GetObject for the manifest.
TOPIC=${TOPIC:-}                     # arn:aws:sns:… ; empty: only the log
MANIFEST=${MANIFEST:-}               # s3://BUCKET/golden.toml ; empty: the checks of a node alone
PACKAGE=${PACKAGE:-}                 # the wheel, which you have built: an https:// URL with #sha256=…, or a path
HOME_FOLDER=${HOME_FOLDER:-/opt/clusterproof}

set -u
LOG=${LOG:-/var/log/clusterproof}
mkdir -p "$LOG"
chmod 750 "$LOG"
export TOPIC MANIFEST PACKAGE HOME_FOLDER LOG

if [ "${1:-}" != run ]; then # what cloud-init starts: hand over, and end
    cp "$0" "$LOG/first-boot.sh"
    exec systemd-run --unit=clusterproof-first-boot --collect --setenv=TOPIC="$TOPIC" --setenv=MANIFEST="$MANIFEST" \
        --setenv=PACKAGE="$PACKAGE" --setenv=HOME_FOLDER="$HOME_FOLDER" --setenv=LOG="$LOG" \
        /bin/sh "$LOG/first-boot.sh" run
fi

exec >>"$LOG/first-boot.log" 2>&1
umask 027
echo "clusterproof: first boot of $(uname -n), $(date -u +%Y-%m-%dT%H:%M:%SZ)"

install() {
    [ -x "$HOME_FOLDER/bin/clusterproof" ] && return
    [ -n "$PACKAGE" ] || { echo "PACKAGE is empty; expected the wheel's URL or path"; return 1; }
    for python in python3 python3.14 python3.13 python3.12 python3.11 none; do # Amazon Linux 2023's python3 is 3.9
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && break
    done
    [ "$python" != none ] || { echo "no Python 3.10 or newer; expected one (dnf install python3.12)"; return 1; }
    "$python" -m venv "$HOME_FOLDER" && "$HOME_FOLDER/bin/pip" install --quiet "$PACKAGE"
}

settle() {
    if command -v cloud-init >/dev/null; then
        timeout "${BOOT_S:-1800}" cloud-init status --wait >/dev/null
        case $? in
            0) ;;
            124) echo "cloud-init has not ended within ${BOOT_S:-1800} s" ;;
            *) echo "cloud-init ended with an error" ;;
        esac
    fi
    up=$(cut -d. -f1 /proc/uptime)
    wait_s=$((${SETTLE_S:-180} - up))
    [ "$wait_s" -le 0 ] || sleep "$wait_s"
}

check() {
    set -- --cluster local --report "$LOG/report"
    if [ -n "$MANIFEST" ]; then
        aws s3 cp --quiet "$MANIFEST" "$LOG/golden.toml" || return 8
        set -- "$@" -m ami --policy "$LOG/golden.toml"
    fi
    runuser -u root -- "$HOME_FOLDER/bin/clusterproof" "$@" # with the limits of a login, not those of a unit
}

words_of() {
    case $1 in
        0) echo "is fit" ;;
        1) echo "FAILED its checks" ;;
        10) echo "is not proven: something could not be measured" ;;
        8) echo "was not checked: $MANIFEST could not be read" ;;
        9) echo "was not checked: clusterproof could not be installed" ;;
        *) echo "was not checked: clusterproof ended with $1" ;;
    esac
}

status=9
if install; then
    settle
    check
    status=$?
fi
echo "$status" >"$LOG/first-boot.exit"
words="$(uname -n) $(words_of "$status")"
echo "clusterproof: $words"
if [ -n "$TOPIC" ] && [ "$status" -ne 0 ]; then
    # Without the rest of a character that is cut, which the AWS CLI does not read.
    tail -c 8000 "$LOG/first-boot.log" | LC_ALL=C sed '1s/^[\x80-\xbf]*//' >"$LOG/first-boot.message"
    subject=$(printf 'clusterproof: %s' "$words" | cut -c1-100)
    aws sns publish --topic-arn "$TOPIC" --subject "$subject" --message "file://$LOG/first-boot.message" >/dev/null ||
        echo "clusterproof: nobody was notified: sns:Publish on $TOPIC failed"
fi
exit 0
