#!/bin/bash
# Records samples/ on a CUDA machine: each program of samples.py, its compiled modules, and the whole of their -p.
here=$(cd "$(dirname "$0")" && pwd); work=$1; mkdir -p "$work"
one() {
  d=$work/$1; mkdir -p "$d/tmp"
  export TORCHINDUCTOR_CACHE_DIR=$d/cache TORCH_TRACE=$d/tt TMPDIR=$d/tmp TORCHINDUCTOR_BENCHMARK_KERNEL=1 TORCHINDUCTOR_UNIQUE_KERNEL_NAMES=1
  export INDUCTOR_PROVENANCE=1 TORCHINDUCTOR_FX_GRAPH_CACHE=0 TORCHINDUCTOR_AUTOGRAD_CACHE=0 TORCHINDUCTOR_COMPILE_THREADS=1
  timeout 200 python3 "$here/samples.py" "$1" > "$d/run.log" 2>&1; echo "$1 $?"
  n=0; unset TORCH_TRACE
  for m in $(sed -n 's/.*Compiled module path: //p' "$d/run.log"); do
    cp "$m" "$d/module_$n.py"
    timeout 100 python3 "$m" -p --times 2 --repeat 2 > "$d/p$n.log" 2>&1; echo "$1 module_$n -p $?"
    [ -f "$d/tmp/compiled_module_profile.json" ] && mv "$d/tmp/compiled_module_profile.json" "$d/trace_$n.json"
    n=$((n+1))
  done
}
for name in foreach combo combo_fixed user partition multi cooperative scan attention dynamic wrapper collective; do one $name & done; wait
