# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where programs run that may do little: other users, empty environments, no home, hidden or read-only file systems."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import tempfile

from harness import BUILD, Skip, check, free_port, main, need, wait_until

SHM = pathlib.Path("/dev/shm")
NOBODY, NAMELESS = 65534, 61234  # the second has no entry in the table of users


@contextlib.contextmanager
def installed(rig):
    """EtherWARP where every user may read it, unlike the build directory perhaps; the rig starts that one."""
    with tempfile.TemporaryDirectory(prefix="ewarp-installed-") as folder:
        root = pathlib.Path(folder)
        root.chmod(0o755)
        for kind in ("bin/etherwarp", "lib/libetherwarp-*.so"):
            for file in BUILD.glob(kind):
                (root / file.parent.name).mkdir(exist_ok=True)
                shutil.copy(file, root / file.parent.name)
        rig.etherwarp = str(root / "bin" / "etherwarp")
        try:
            yield root
        finally:
            rig.end_children()


class User:
    """How to run a program as this user, with nothing in its environment."""

    def __init__(self, uid):
        self.uid = uid
        self.rundir = SHM / f"etherwarp-{uid}"
        self.words = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "env", "-i"]

    def has_processes(self):
        return subprocess.run(["pgrep", "-u", str(self.uid)], stdout=subprocess.DEVNULL, check=False).returncode == 0

    def start(self, rig, *words, options=(), variables=()):
        program = shutil.which(str(words[0]))
        return rig.start_plain([*self.words, *variables, rig.etherwarp, "run", *options, "--", program, *words[1:]],
                               name=f"{words[0]} of user {self.uid}")  # fmt: skip

    def octets(self, rig):
        """By pid, of the processes whose counters this user sees."""
        done = subprocess.run([*self.words, rig.etherwarp, "stat", "--json"], env=rig.env, capture_output=True, text=True,
                              timeout=20, check=False)  # fmt: skip
        check(done.returncode == 0, f"etherwarp stat: {done.stderr}")
        return {p["pid"]: sum(d["tx_octets"] + d["rx_octets"] for d in p["devices"]) for p in json.loads(done.stdout)}


@contextlib.contextmanager
def users(*uids):
    """Users that are not us, and whose run directories are gone again afterwards."""
    need("setpriv", "env", "pgrep")
    made = [User(uid) for uid in uids]
    if os.geteuid() != 0 or subprocess.run([*made[0].words, "true"], capture_output=True, check=False).returncode != 0:
        raise Skip("we may not become another user here")
    if any(user.has_processes() for user in made):
        raise Skip(f"a user of {uids} runs programs here already")
    for user in made:  # what a run that was killed has left
        shutil.rmtree(user.rundir, ignore_errors=True)
    try:
        yield made
    finally:
        for user in made:
            shutil.rmtree(user.rundir, ignore_errors=True)


def quiet(process):
    """It ended well, and EtherWARP had nothing to say."""
    process.must_end_well(20)
    check("etherwarp:" not in process.output(), f"{process.name} was not quiet\n{process.said()}")
    return process.output()


def endless_rping(rig, server_user, client_user, **client_how):
    """A server of one user and its client of the other, in mid-transfer."""
    port = free_port()
    common = ["-a", "127.0.0.1", "-p", port, "-V"]
    # tried until the server listens, whose table of sockets is not asked for
    server = server_user.start(rig, "rping", "-s", *common)
    options = [*client_how.pop("options", ()), "--refused-wait-ms", 10000]
    client = client_user.start(rig, "rping", "-c", *common, options=options, **client_how)

    def busy():
        for process in (server, client):
            check(process.status is None, f"{process.name} ended\n{process.said()}")
        return server_user.octets(rig).get(server.pid, 0) > 100_000

    wait_until(busy, 20, lambda: f"no transfer\n{server.said()}\n{client.said()}")
    return server, client


def leave(server, client):
    client.end()
    # an error to rping if a request of its was under way
    server.must_end_well(10, statuses=(0, 255))


def unprivileged(rig):
    """nobody, and a user without a name: no home, an empty environment; devices, doctor, rping, counters."""
    need("ibv_devices", "ibv_devinfo", "rping")
    with installed(rig), users(NOBODY, NAMELESS) as both:
        for user in both:
            listed = quiet(user.start(rig, "ibv_devices"))
            check(re.search(r"^\s*ewarp_lo\s", listed, re.M), f"ibv_devices does not list ewarp_lo:\n{listed}")
            info = quiet(user.start(rig, "ibv_devinfo", "-d", "ewarp_lo"))
            check("PORT_ACTIVE" in info, f"ibv_devinfo:\n{info}")
            doctor = rig.start_plain([*user.words, rig.etherwarp, "doctor"])
            doctor.must_end_well(20)
            for expected in (r"ok\s+interfaces\s", rf"ok\s+counters\s+in {user.rundir}"):
                check(re.search(expected, doctor.output()), f"doctor does not say {expected}\n{doctor.said()}")
            server, client = endless_rping(rig, user, user)
            check({server.pid, client.pid} <= set(user.octets(rig)), f"user {user.uid} does not see its own counters")
            leave(server, client)
            check(not user.octets(rig) and not list(user.rundir.iterdir()), "counters are left of programs that ended")
            print(f"  user {user.uid}: devices, doctor, rping and counters")


def two_users(rig):
    """Two users' programs talk to each other, and neither sees or disturbs the other's counters."""
    need("rping")
    with installed(rig), users(NOBODY, NAMELESS) as (one, other):
        server, client = endless_rping(rig, one, other)
        wait_until(lambda: other.octets(rig).get(client.pid, 0) > 100_000, 10, "the client's user sees no octets")
        for user, own, foreign in ((one, server, client), (other, client, server)):
            seen = user.octets(rig)
            check(own.pid in seen and foreign.pid not in seen, f"user {user.uid} sees {set(seen)}, not {own.pid} alone")
            status = user.rundir.stat()
            check(status.st_uid == user.uid and stat.S_IMODE(status.st_mode) == 0o700, f"{user.rundir}: {status}")
            check(all(stat.S_IMODE(f.stat().st_mode) == 0o600 for f in user.rundir.iterdir()), f"files of {user.rundir}")
        everybody = {key: value for key, value in rig.env.items() if key != "ETHERWARP_RUNDIR"}
        shown = subprocess.run([rig.etherwarp, "stat", "--json"], env=everybody, capture_output=True, text=True, timeout=20,
                               check=True)  # fmt: skip
        check({server.pid, client.pid} <= {p["pid"] for p in json.loads(shown.stdout)}, "root does not see both")
        leave(server, client)


def foreign_directory(rig):
    """The place of one's counters belongs to somebody else: programs work without, and say so if asked."""
    need("rping")
    with installed(rig), users(NOBODY, NAMELESS) as (one, other):
        other.rundir.mkdir(mode=0o777)
        other.rundir.chmod(0o777)
        os.chown(other.rundir, one.uid, one.uid)
        server, client = endless_rping(rig, one, other, options=["--log", "warn"])
        said = [line for line in client.output().splitlines() if line.startswith("etherwarp:")]
        check(len(said) == 1 and str(other.rundir) in said[0] and "ETHERWARP_RUNDIR" in said[0],
              f"not one line about {other.rundir}\n{client.said()}")  # fmt: skip
        check(not list(other.rundir.iterdir()), f"something was written to {other.rundir}")
        leave(server, client)


def no_home(rig):
    """HOME that is not there, may not be read, or is no directory: nothing is said, everything works."""
    need("ibv_devices")
    with installed(rig) as root, users(NOBODY) as (user,):
        (root / "closed").mkdir(mode=0o700)
        (root / "file").touch()
        for home in ("/nonexistent", "/", "/proc", str(root / "closed"), str(root / "file"), ""):
            for variable in ("HOME", "XDG_CONFIG_HOME"):
                listed = quiet(user.start(rig, "ibv_devices", variables=[f"{variable}={home}"]))
                check("ewarp_lo" in listed, f"{variable}={home}: no devices\n{listed}")


def namespaces(*flags):
    """The words of `unshare` with these flags; as root of a user namespace where we are not root."""
    need("unshare")
    words = ["unshare", *([] if os.geteuid() == 0 else ["-r"]), *flags]
    done = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Skip(f"{' '.join(words)} is not allowed here: {done.stderr.strip()}")
    return words


def works(rig, name, wrap, **how):
    """ibv_devices, ibv_devinfo and rping under these words."""
    need("ibv_devices", "ibv_devinfo", "rping")
    check("ewarp_lo" in rig.run(["ibv_devices"], wrap=wrap, **how), f"{name}: no ewarp_lo")
    info = rig.run(["ibv_devinfo", "-v", "-d", "ewarp_lo"], wrap=wrap, **how)
    check("PORT_ACTIVE" in info and "GID[" in info, f"{name}: ibv_devinfo:\n{info}")
    rig.ended()
    port = free_port()
    common = ["-a", "127.0.0.1", "-p", port, "-V", "-C", 100]
    rig.pair(f"rping, {name}", ["rping", "-s", *common], ["rping", "-c", *common], port, 100 * 64,
             server_how={"wrap": wrap, **how}, client_how={"wrap": wrap, **how})  # fmt: skip


def hidden_file_systems(rig):
    """/sys empty, /dev without anything, /dev/shm read-only: devices and rping all the same."""
    mounts = namespaces("-m")
    with installed(rig):
        for name, script in (("no /sys", "mount -t tmpfs -o ro none /sys"),
                             ("no /dev", "mount -t tmpfs -o ro none /dev"),
                             ("/dev/shm read-only", "mount -t tmpfs -o ro none /dev/shm"),
                             ("none of them", "mount -t tmpfs -o ro none /sys && mount -t tmpfs -o ro none /dev")):  # fmt: skip
            works(rig, name, [*mounts, "sh", "-c", f'{script} && exec "$@"', "sh"])
        # Neither their default place is there, nor another named: the counters stay where they are.
        script = 'mount -t tmpfs -o ro none /dev/shm && unset ETHERWARP_RUNDIR && exec "$@"'
        process = rig.start(["ibv_devinfo"], wrap=[*mounts, "sh", "-c", script, "sh"], options=["--log", "warn"])
        process.must_end_well(20)
        said = [line for line in process.output().splitlines() if line.startswith("etherwarp:")]
        check(len(said) == 1 and f"{SHM}/etherwarp-" in said[0] and "Read-only file system" in said[0],
              f"not one line about the counters\n{process.said()}")  # fmt: skip


def user_namespace(rig):
    """A user namespace without rights or names, and one with a network of its own, as rootless containers have."""
    bare = ["unshare", "-U"]
    need("unshare", "ip", "timeout")
    done = subprocess.run([*bare, "true"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Skip(f"unshare -U is not allowed here: {done.stderr.strip()}")
    with installed(rig):
        works(rig, "unshare -U", bare)
        script = """ip link set lo up || exit 77
            timeout 20 "$1" run --stats-keep -- rping -s -a 127.0.0.1 -V -C 100 & server=$!
            timeout 20 "$1" run --stats-keep --refused-wait-ms 10000 -- rping -c -a 127.0.0.1 -V -C 100 &&
            wait $server"""
        process = rig.start_plain(["unshare", "-U", "-r", "-n", "sh", "-c", script, "sh", rig.etherwarp], name="unshare -Urn")
        status = process.wait(40)
        if status == 77:
            raise Skip(f"no network of one's own here:\n{process.said()}")
        check(status == 0, f"exit status {status}\n{process.said()}")
        octets = [sum(d["tx_octets"] for d in p["devices"]) for p in rig.ended()]
        check(len(octets) == 2 and min(octets) > 100 * 64, f"octets by EtherWARP's counters: {octets}\n{process.said()}")
        print("  rping in a user and network namespace")


if __name__ == "__main__":
    main(unprivileged, two_users, foreign_directory, no_home, hidden_file_systems, user_namespace)
