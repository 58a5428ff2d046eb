#!/bin/sh
# Gates a machine image from outside: launches an instance from it, waits until it has settled, holds it against its
# golden manifest through Systems Manager, and terminates it whatever happens. `gate.sh terminate` only does the last,
# for the step of a pipeline that runs always. Exit code: clusterproof's, so 10 where the instance could not be measured
# because it never came online; 3 where it could not be terminated.
# docs/images.md of clusterproof says what each variable is.
set -eu

# Each attempt is a run of its own: by a client token that it has seen, EC2 gives the instance that is gone. It takes
# one of at most 64 characters, which Jenkins' BUILD_TAG may exceed.
RUN=${RUN:-${GITHUB_RUN_ID:+$GITHUB_RUN_ID-${GITHUB_RUN_ATTEMPT:-1}}}
RUN=${RUN:-${CI_JOB_ID:-}}
: "${RUN:?a name for this run, by which its instance is found again}"
REPORTS=${REPORTS:-reports}
TAG=clusterproof-gate
token=$(printf %s "$TAG-$RUN" | sha256sum | cut -c 1-64)

instances() {
    aws ec2 describe-instances --filters "Name=tag:$TAG,Values=$RUN" \
        "Name=instance-state-name,Values=pending,running,stopping,stopped" \
        --query 'Reservations[].Instances[].InstanceId' --output text
}

terminate() {
    found=$(instances) || return 1
    for one in $found; do
        [ "$one" = None ] && continue
        aws ec2 terminate-instances --instance-ids "$one" >/dev/null || return 1
        echo "terminated $one"
    done
}

# shellcheck disable=SC2317 # a trap runs it
leave() {
    status=$?
    trap - EXIT INT TERM HUP
    terminate || { echo "NOT TERMINATED: the instances tagged $TAG=$RUN; terminate them by hand" >&2; status=3; }
    exit "$status"
}

if [ "${1:-}" = terminate ]; then
    terminate
    exit
fi

: "${IMAGE:?the image to gate: ami-…}" "${INSTANCE_TYPE:?what to launch it on}" "${SUBNET:?subnet-…}"
: "${INSTANCE_PROFILE:?an instance profile with AmazonSSMManagedInstanceCore}" "${MANIFEST:?the golden manifest, a file}"
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
mkdir -p "$REPORTS"

# Should this script's machine die, the instance ends itself.
cat >"$REPORTS/user-data" <<END
#!/bin/sh
shutdown -P +${LIFETIME_MINUTES:-60}
END
# The options are words on purpose: --capacity-reservation-specification …, --security-group-ids …
# shellcheck disable=SC2086
instance=$(aws ec2 run-instances --image-id "$IMAGE" --instance-type "$INSTANCE_TYPE" --subnet-id "$SUBNET" \
    --iam-instance-profile "Name=$INSTANCE_PROFILE" --count 1 --client-token "$token" \
    --instance-initiated-shutdown-behavior terminate --user-data "file://$REPORTS/user-data" \
    --metadata-options HttpTokens=required --tag-specifications \
    "ResourceType=instance,Tags=[{Key=$TAG,Value=$RUN},{Key=Name,Value=$TAG-$RUN}]" ${RUN_OPTIONS:-} \
    --query 'Instances[0].InstanceId' --output text)
echo "launched $instance ($INSTANCE_TYPE) from $IMAGE"

aws ec2 wait instance-status-ok --instance-ids "$instance" ||
    { echo "$instance was not seen to pass its status checks: it does not boot, boots slowly, or may not be asked" >&2; exit 10; }
tries=0
until [ "$(aws ssm describe-instance-information --filters "Key=InstanceIds,Values=$instance" \
    --query 'InstanceInformationList[0].PingStatus' --output text)" = Online ]; do
    tries=$((tries + 1))
    [ "$tries" -lt "${AGENT_TRIES:-60}" ] || { echo "$instance is not online in Systems Manager: its agent or its role" >&2; exit 10; }
    sleep "${PAUSE_S:-10}"
done
echo "online in Systems Manager; settling"
sleep "${SETTLE_S:-180}" # devices enumerate late after boot

status=0
# shellcheck disable=SC2086
${CLUSTERPROOF:-clusterproof} --cluster "ec2:$instance" -m ami --policy "$MANIFEST" --report "$REPORTS" \
    --record "$REPORTS/recording" ${OPTIONS:-} || status=$?
exit "$status"
