#!/bin/sh
# Keeps a container of Ardea running within a Slurm job.
#
#   container.sh FOLDER PROGRAM ARGUMENT...         the Slurm job: runs the incarnations of the container, each a step
#   container.sh --life FOLDER PROGRAM ARGUMENT...  a step: one incarnation
#
# Files in FOLDER, which all nodes share: start.json has the worker's start parameters, life.json and end.json
# describe the latest incarnation, stop prevents further ones, go ends the delay before the next one. Next to
# FOLDER is environment.sh.

# put NAME TEXT: writes a file of FOLDER atomically.
put() {
    printf '%s\n' "$2" >"$folder/.$1.$$" && mv -f "$folder/.$1.$$" "$folder/$1"
}

# number NAME KEY: prints a number in a file of FOLDER; 0 if there is none.
number() {
    found=$(sed -n "s/.*\"$2\":\([0-9][0-9]*\).*/\1/p" "$folder/$1" 2>/dev/null)
    echo "${found:-0}"
}

# ended LIFE CODE: records the end of an incarnation, unless it is recorded.
ended() {
    [ "$(number end.json incarnation)" -lt "$1" ] || return 0
    if [ "$2" -gt 128 ] && [ "$2" -le 192 ]; then how="{\"Signal\":$(($2 - 128))}"; else how="{\"Code\":$2}"; fi
    put end.json "{\"incarnation\":$1,\"how\":$how,\"remark\":null}"
}

# size NAME: prints the size of a file of FOLDER; 0 if there is none.
size() {
    found=$(wc -c 2>/dev/null <"$folder/$1")
    echo "$((${found:-0}))"
}

# position NAME: prints the number of bytes written to an output so far, over all incarnations. NAME.at has the
# inode and start position of one of its files, the current or the previous one.
position() {
    inode=0
    at=0
    [ ! -r "$folder/$1.at" ] || read -r inode at <"$folder/$1.at"
    [ "$inode" = "$(stat -c %i "$folder/$1" 2>/dev/null)" ] || at=$((at + $(size "$1.1")))
    echo "$((at + $(size "$1")))"
}

# sweep LIFE: kills the leftover processes of an incarnation.
sweep() {
    grep -lzxF "ARDEA_CONTAINER=$folder#$1;" /proc/[0-9]*/environ 2>/dev/null | while read -r environment; do
        pid=${environment#/proc/}
        kill -KILL "${pid%/environ}" 2>/dev/null
    done
}

life() {
    folder=$1
    shift
    # The program gets the signal as well; this waits for it.
    trap : TERM INT HUP
    life=$(date +%s%3N)
    case $life in *[!0-9]*) life=$(date +%s)000 ;; esac
    last=$(number life.json incarnation)
    [ "$life" -gt "$last" ] || life=$((last + 1))
    address=$(scontrol show node -o "$SLURMD_NODENAME" 2>/dev/null | tr ' ' '\n' | sed -n 's/^NodeAddr=//p')
    : "${address:=$(hostname)}"
    from=$(position stderr.log)
    put life.json "{\"incarnation\":$life,\"host\":\"$address\",\"node\":\"$SLURMD_NODENAME\",\"step\":\"$SLURM_JOB_ID.$SLURM_STEP_ID\",\"stderr_from\":$((from))}"
    . "$folder/../environment.sh"
    ARDEA_WORKER=$(sed -e "s/@INCARNATION@/$life/" -e "s/@HOST@/$address/" "$folder/start.json")
    # The program limits its output to these bounds.
    ARDEA_OUTPUT=$(cat "$folder/output.json")
    export ARDEA_WORKER ARDEA_OUTPUT
    cd "$folder/work" || exit 125
    ARDEA_CONTAINER="$folder#$life;" "$@" >>"$folder/stdout.log" 2>>"$folder/stderr.log" </dev/null
    code=$?
    ended "$life" "$code"
    sweep "$life"
    exit "$code"
}

if [ "$1" = --life ]; then
    shift
    life "$@"
fi

folder=$1
trap : TERM INT HUP
failures=0
while [ ! -e "$folder/stop" ]; do
    began=$(date +%s)
    rm -f "$folder/go"
    srun --ntasks=1 --nodes=1 --input=none --export=ALL --job-name=ardea sh "$0" --life "$@"
    code=$?
    # The step may have been killed before it recorded the end.
    ended "$(number life.json incarnation)" "$code"
    [ $(($(date +%s) - began)) -lt 120 ] || failures=0
    failures=$((failures + 1))
    # Tenths of a second: they double up to half a minute.
    case $failures in
        1) wait=2 ;; 2) wait=4 ;; 3) wait=8 ;; 4) wait=16 ;; 5) wait=32 ;; 6) wait=64 ;; 7) wait=128 ;; *) wait=300 ;;
    esac
    while [ $wait -gt 0 ] && [ ! -e "$folder/stop" ] && [ ! -e "$folder/go" ]; do
        sleep 0.1
        wait=$((wait - 1))
    done
done
