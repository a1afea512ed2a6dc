# Sourced by the other scripts. Sets `root` (the checkout) and `python` (an interpreter that can import the package),
# and goes to the checkout.
#
# A machine whose python3 already has a CUDA build of torch and what the tool needs is used as it is: a GPU machine's
# torch is not ours to replace, and it may have no network. Everywhere else one virtual environment, .venv, is made in
# the checkout, and made again only when what it was made from has changed.
#
# Variables: INDUCTOR_BENCH_PYTHON names an interpreter to use as it is, INDUCTOR_BENCH_BASE_PYTHON the one to make .venv
# with. On a machine without a GPU, PIP_EXTRA_INDEX_URL can name the index of the small CPU builds of torch.
#
# .venv has timm, torchvision and transformers. A torchvision from a registry is built for a CUDA torch; so that it can
# be imported beside a CPU torch as well, .venv gets torchvision_operators.py, which says what it does and does not.

root="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)"
cd -- "$root"
extras="dev,timm,transformers,query,ray,mcp"

say() { printf '%s\n' "$*" >&2; }

has_gpu_torch() {
    # The cheap questions first: importing torch takes seconds.
    "$1" - 2>/dev/null <<'PYTHON'
import importlib.util, sys
needed = ("torch", "click", "jinja2", "matplotlib", "msgspec", "numpy", "psutil", "rich", "pytest")
if sys.version_info < (3, 10) or not all(importlib.util.find_spec(name) for name in needed):
    sys.exit(1)
import torch
version = tuple(int(part) for part in torch.__version__.split(".")[:2])
sys.exit(0 if version >= (2, 9) and torch.cuda.is_available() else 1)
PYTHON
}

environment_stamp() {
    printf '%s\n' "$root" "$("$1" -V 2>&1)" "$extras"
    cat setup.cfg setup.py pyproject.toml configs/constraints.txt scripts/torchvision_operators.py | cksum
}

make_environment() {
    local base=$1 folder="$root/.venv" stamp log packages
    stamp="$(environment_stamp "$base")"
    if [ -x "$folder/bin/python" ] && [ "$(cat "$folder/stamp" 2>/dev/null)" = "$stamp" ] \
        && "$folder/bin/python" -c '' 2>/dev/null; then
        return
    fi
    say "Setting up $folder with $("$base" -V 2>&1) (a minute or two, once) …"
    if ! "$base" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
        say "inductor-bench needs Python 3.10 or newer; name one with INDUCTOR_BENCH_BASE_PYTHON=/path/to/python3"
        return 1
    fi
    rm -rf "$folder"
    if ! "$base" -m venv "$folder"; then
        say "Could not make a virtual environment. On Debian and Ubuntu: apt-get install python3-venv"
        return 1
    fi
    log="$folder/install.log"
    # pip would compile every file of these packages, which takes a minute; a module is compiled when it is imported.
    if ! "$folder/bin/python" -m pip install --disable-pip-version-check --no-input --no-compile \
        -c configs/constraints.txt -e ".[$extras]" >"$log" 2>&1 </dev/null; then
        tail -n 20 "$log" >&2
        say "The installation failed; the whole log is $log"
        return 1
    fi
    packages="$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" || return 1
    cp scripts/torchvision_operators.py "$packages/" || return 1
    printf 'import torchvision_operators\n' >"$packages/torchvision_operators.pth"
    env -u PYTHONDONTWRITEBYTECODE "$folder/bin/python" -c \
        'import torch._inductor.compile_fx, torch.profiler, transformers, matplotlib.pyplot' >>"$log" 2>&1 || true
    printf '%s\n' "$stamp" >"$folder/stamp"
}

choose_python() {
    local base="${INDUCTOR_BENCH_BASE_PYTHON:-python3}"
    if [ -n "${INDUCTOR_BENCH_PYTHON:-}" ]; then
        python="$INDUCTOR_BENCH_PYTHON"
    elif ! command -v "$base" >/dev/null; then
        say "$base was not found; install Python 3.10 or newer"
        return 1
    elif has_gpu_torch "$base"; then
        python="$(command -v "$base")"
    else
        # Two scripts at once must not build the same folder.
        if command -v flock >/dev/null; then
            exec 9>"$root/.venv.lock"
            flock 9
        fi
        make_environment "$base" || return 1
        exec 9>&-
        python="$root/.venv/bin/python"
        # Programs that call plain `python` or `inductor-bench` get this one.
        PATH="$root/.venv/bin:$PATH"
        return
    fi
    PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
    export PYTHONPATH
}

choose_python || exit 1
