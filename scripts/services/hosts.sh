#!/usr/bin/env bash
# Several hosts on this machine: hosts.sh COUNT. Each is a network namespace on one bridge; needs root.
#
# Prints `ready PREFIX SUBNET`: host I is the namespace PREFIX-I with the address SUBNET.I; this machine is SUBNET.254.
# A program runs on host I by `ip netns exec PREFIX-I PROGRAM`. Lines of standard input are commands, each answered by a line
# `ok`; at its end all is removed, with whatever still runs there:
#
#   cut I        disconnects host I          heal I       connects it again
#   cut I J      from host J only            heal I J
#
# shellcheck source-path=SCRIPTDIR source=service.sh
. "$(dirname "$0")/service.sh"
count=$1

[ "$(id -u)" = 0 ] || cannot "several hosts need root, for network namespaces"
need_packages ip iproute2
need_packages iptables iptables
ip netns add ardea-probe-$$ 2>/dev/null || cannot "this machine allows no network namespaces"
ip netns del ardea-probe-$$

# The first free number among the networks of this kind: several tests may run at once.
claim() {
    local id
    for id in $(seq 100 199); do
        if ip link add "ardea$id" type bridge 2>/dev/null; then
            echo "$id"
            return
        fi
    done
    cannot "there is no free network"
}
id=$(claim)
prefix=ardea$id subnet=10.$id.0

tear_down() {
    local namespace
    for namespace in $(seq -f "$prefix-%g" "$count"); do
        # Only what runs in these namespaces, which nobody else has.
        # shellcheck disable=SC2046 # one word a process
        kill -KILL $(ip netns pids "$namespace" 2>/dev/null) 2>/dev/null || true
        ip netns del "$namespace" 2>/dev/null || true
    done
    ip link del "$prefix" 2>/dev/null || true
}
trap tear_down EXIT

within() {
    local host=$1
    shift
    ip netns exec "$prefix-$host" "$@"
}

ip addr add "$subnet.254/24" dev "$prefix"
ip link set "$prefix" up
for host in $(seq "$count"); do
    ip netns add "$prefix-$host"
    ip link add "$prefix-$host" type veth peer name eth0 netns "$prefix-$host"
    ip link set "$prefix-$host" master "$prefix" up
    within "$host" ip link set lo up
    within "$host" ip addr add "$subnet.$host/24" dev eth0
    within "$host" ip link set eth0 up
    within "$host" ip route add default via "$subnet.254"
done

# between FLAG HOST HOST: adds or deletes, on both, the rule that drops what the other sends.
between() {
    within "$2" iptables -w "$1" INPUT -s "$subnet.$3" -j DROP
    within "$3" iptables -w "$1" INPUT -s "$subnet.$2" -j DROP
}

echo "ready $prefix $subnet"
while read -r verb host other; do
    # State 0 of a bridge's port lets nothing through, 3 everything.
    case "$verb${other:+ pair}" in
    cut) bridge link set dev "$prefix-$host" state 0 ;;
    heal) bridge link set dev "$prefix-$host" state 3 ;;
    "cut pair") between -I "$host" "$other" ;;
    "heal pair") between -D "$host" "$other" ;;
    *) echo "hosts.sh: no such command: $verb" >&2 && exit 2 ;;
    esac
    echo ok
done
