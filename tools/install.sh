# Install into .venv, with uv if the machine has it or the new environment can get it, else with pip:
#
#     sh tools/install.sh -r requirements.txt        # arguments that both installers know
#
# Variables, which make hands on: PIP_ARGS has more arguments. LOCKED=1 takes the versions of constraints.txt. UV= takes
# pip. UV_TORCH_BACKEND names the build of PyTorch, such as cpu or cu130; an empty one takes PyPI's. ENVIRONMENT is
# another folder than .venv.

environment="${ENVIRONMENT:-.venv}"
python="$environment/bin/python"
uv=${UV-$(command -v uv || command -v "$environment/bin/uv")}

# uv does not read pip's configuration, where a mirror may be named.
settings=$("$python" -m pip config list 2>/dev/null)
configured() {
    printf '%s\n' "$settings" | sed -n "s/\\\\n/ /g; s/^[^=]*\.$1='\(.*\)'\$/\1/p" | head -n 1
}
export UV_INDEX_URL="${UV_INDEX_URL-$(configured index-url)}"
export UV_EXTRA_INDEX_URL="${UV_EXTRA_INDEX_URL-$(configured extra-index-url)}"
export UV_FIND_LINKS="${UV_FIND_LINKS-$(configured find-links)}"
export UV_INSECURE_HOST="${UV_INSECURE_HOST-$(configured trusted-host)}"
# With several indexes take the best version of all, as pip does, not the first index that knows the package.
export UV_INDEX_STRATEGY="${UV_INDEX_STRATEGY:-unsafe-best-match}"

with_uv() {
    "$uv" pip install --python "$python" $PIP_ARGS "$@"
}
with_pip() {
    "$python" -m pip install $PIP_ARGS "$@"
}

if [ -z "$uv" ] && [ -z "${UV+set}" ] && with_pip --quiet --retries 1 uv 2>/dev/null; then
    uv="$environment/bin/uv"
    if ! with_uv --dry-run --reinstall --no-deps uv 2>/dev/null; then # pip may know a proxy that uv does not
        rm "$uv"
        uv=
    fi
fi
if [ -z "$uv" ]; then
    with_pip "$@"
    exit
fi

# On Linux, PyPI has PyTorch with CUDA for new drivers. PyTorch's own index has it without CUDA, and for older drivers.
# uv's `auto` finds the build for the driver, but takes Intel's graphics, which most laptops have, for a GPU, too.
gpu() {
    [ -e /sys/module/nvidia/version ] || [ -e /proc/driver/nvidia/version ] || nvidia-smi -L >/dev/null 2>&1
}
if [ "$(uname)" != Linux ]; then
    build=
elif ! gpu; then
    build=cpu
elif [ -n "$LOCKED" ]; then
    build= # constraints.txt has the libraries of PyPI's build
else
    build=auto
fi
build=${UV_TORCH_BACKEND-$build}
unset UV_TORCH_BACKEND # uv would look for Triton there, too

pytorch() {
    grep '^torch[v>]' requirements.txt | {
        # `auto` means several indexes, of which that for the newest CUDA comes first.
        [ "$build" != auto ] || UV_INDEX_STRATEGY=first-index
        with_uv ${LOCKED:+-c constraints.txt} --torch-backend "$build" -r - "$@"
    }
}
if [ -n "$build" ] && ! "$python" -c 'import importlib.metadata as all; all.version("torch")' 2>/dev/null; then
    if (export UV_HTTP_RETRIES=1 UV_HTTP_CONNECT_TIMEOUT=5 UV_HTTP_TIMEOUT=10 && pytorch --dry-run) 2>/dev/null; then
        pytorch || exit
    else
        echo "PyTorch's index of smaller builds cannot be reached, or has none that fits: taking PyPI's: a download of 3.2 GB, 6.2 GB of disk" >&2
    fi
fi
with_uv "$@"
