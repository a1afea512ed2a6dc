#!/usr/bin/env bash
# Measures a program of two checkouts, one after the other on this machine, and writes what a pull request is told:
#
#   compare.sh BASE HEAD PROGRAM [LIMIT]      for example: compare.sh base head train.py 5%
#
# The folder inductor-bench gets comment.md (ten lines), compare.md (all of it), difference.zip (a page, the figures and
# both versions of each kernel that differs) and the RUNs. Ends with the exit code of `inductor-bench compare`: 0 not
# slower, 4 slower, 5 undecided, 1 not comparable or not measured.
set -u

base=$1 head=$2 program=$3 limit=${4:-5%}
out=$PWD/inductor-bench
mkdir -p "$out"

measure() { # CHECKOUT NAME
    (cd "$1" && inductor-bench breakdown --stop --force -o "$out/$2" "$program") >"$out/$2.log" 2>&1
}

comment() { # CODE
    if [ -s "$out/compare.md" ]; then
        sed '/^## /,$d' "$out/compare.md" | grep -v '^$' | head -n 8 | sed 's/$/\n/'
    else
        printf '**inductor-bench compared nothing (exit code %s).** The logs say why: %s\n\n' "$1" \
            "$(cat "$out"/*.log | tail -n 1)"
    fi
    if ! command -v nvidia-smi >/dev/null; then
        printf 'There is no GPU on this runner: both sides ran on its CPU.\n\n'
    fi
    printf 'The artifacts of this job hold both RUNs and `difference.zip`.\n'
}

code=0
measure "$base" base && measure "$head" head || code=1
if [ $code = 0 ]; then
    inductor-bench compare "$out/base" "$out/head" --fail-above "$limit" --format md --bundle "$out/difference.zip" \
        >"$out/compare.md" 2>"$out/compare.log" || code=$?
fi
comment $code >"$out/comment.md"
exit $code
