# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What `cmake --install` puts somewhere works from there: the tool, the environment it makes, the libraries by .pc files."""
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

from harness import BUILD, check, free_port, listens, main, need, wait_until
from mpi_jobs import as_anybody

ROOT = pathlib.Path(__file__).resolve().parents[2]
MPI = [f"gravel-{library}" for library in ("mpich", "openmpi") if (BUILD / "lib" / f"libgravel_{library}.a").exists()]
LIBRARIES = ("etherwarp", "etherwarp-acp", "etherwarp-channel", "etherwarpdv", "gravel", *MPI)

# A program on verbs alone: its devices, and that one of them opens.
VERBS = r"""
#include <infiniband/verbs.h>
#include <stdio.h>
int main(void) {
  int count = 0;
  struct ibv_device **list = ibv_get_device_list(&count);
  for (int i = 0; i < count; ++i) {
    struct ibv_context *context = ibv_open_device(list[i]);
    if (context == NULL) return 1;
    printf("opened %s\n", ibv_get_device_name(list[i]));
    ibv_close_device(context);
  }
  ibv_free_device_list(list);
  return 0;
}
"""

# One on EtherWARP's own verbs.
DIRECT = r"""
#include <infiniband/etherwarpdv.h>
#include <stdio.h>
#include <string.h>
int main() {
  int count = 0;
  struct ibv_device **list = ibv_get_device_list(&count);
  for (int i = 0; i < count; ++i) {
    if (strcmp(ibv_get_device_name(list[i]), "ewarp_lo") != 0) continue;
    struct ibv_context *context = ibv_open_device(list[i]);
    struct etherwarpdv_device_attr attr;
    if (!etherwarpdv_is_supported(context)) return 1;
    if (etherwarpdv_query_device(context, &attr, sizeof attr) != 0) return 2;
    printf("RD %d, messages of %u\n", (attr.device_caps & ETHERWARPDV_DEVICE_RD) != 0, attr.rd_max_message);
    ibv_close_device(context);
  }
  ibv_free_device_list(list);
  return 0;
}
"""


def install(prefix=None, destdir=None, component=None):
    """The names of what was installed, as they will be in the end."""
    need("cmake")
    words = ["cmake", "--install", str(BUILD), *(["--prefix", str(prefix)] if prefix else []),
             *(["--component", component] if component else [])]  # fmt: skip
    environment = {key: value for key, value in os.environ.items() if key != "DESTDIR"}
    if destdir:
        environment["DESTDIR"] = str(destdir)
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    check(done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}")
    return [line.split(": ", 1)[1] for line in done.stdout.splitlines() if re.match(r"-- (Installing|Up-to-date): ", line)]


@contextlib.contextmanager
def installed(rig):
    """A prefix with EtherWARP in it; the rig starts that one."""
    with tempfile.TemporaryDirectory(prefix="ewarp-install-") as folder:
        prefix = pathlib.Path(folder) / "prefix"
        install(prefix)
        rig.etherwarp = str(prefix / "bin" / "etherwarp")
        try:
            yield prefix
        finally:
            rig.end_children()


def shell(rig, text, seconds=20, **how):
    """What this shell script says, which ends well."""
    process = rig.start_plain(["bash", "-ec", text], name=text.split()[0], **how)
    process.must_end_well(seconds)
    return process.output()


def compiled(rig, prefix, name, source, *packages, compiler="cc", options="-Wall -Wextra -Werror"):
    """A program from this text or these files, with what pkg-config says of the packages; where it is."""
    need(compiler, "pkg-config")
    program = prefix.parent / name
    if isinstance(source, str):
        file = prefix.parent / f"{name}{'.c' if compiler == 'cc' else '.cc'}"
        file.write_text(source, encoding="utf-8")
        source = [file]
    files = " ".join(map(str, source))
    shell(rig, f"{compiler} {options} -o {program} {files} $(pkg-config --cflags --libs {' '.join(packages)})", 60,
          env={"PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")})  # fmt: skip
    return program


def mapped(pid):
    """The files of EtherWARP's that a process has mapped."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as f:
        return {line.split()[-1] for line in f if "etherwarp" in line.split()[-1] and "/" in line.split()[-1]}


def tool(rig):
    """Below a prefix: the tool, `eval "$(etherwarp env)"` in a bare shell, rping over what is installed and nothing else."""
    need("ibv_devices", "rping")
    with installed(rig) as prefix:
        words = f"env -i PATH={prefix}/bin:$PATH ETHERWARP_RUNDIR={rig.rundir} sh -ec"
        doctor = shell(rig, f"{words} 'etherwarp doctor'")
        check(str(prefix) in doctor and str(BUILD) not in doctor, f"doctor does not look at {prefix} alone:\n{doctor}")
        check("ewarp_lo" in shell(rig, f"{words} 'etherwarp devices'"), "no ewarp_lo")
        listed = shell(rig, f"""{words} 'eval "$(etherwarp env)"; ibv_devices'""")
        check(re.search(r"^\s*ewarp_lo\s", listed, re.M), f"no ewarp_lo in a shell with `etherwarp env`:\n{listed}")
        port = free_port()
        common = f"-a 127.0.0.1 -p {port} -V -C 50"
        script = f"""exec {words} 'eval "$(etherwarp env)"; exec rping -s {common}'"""
        server = rig.start_plain(["bash", "-ec", script], name="rping -s")
        wait_until(lambda: server.status is not None or listens(server.pid, port), 15, server.said)
        check(server.status is None, server.said())
        files = mapped(server.pid)
        check(len(files) == 2 and all(f.startswith(f"{prefix}/lib/") for f in files), f"rping maps {files}")
        shell(rig, f"""{words} 'eval "$(etherwarp env)"; rping -c {common}'""")
        server.must_end_well(10)
        print("  doctor, devices, env, rping")


def destdir(rig):
    """With DESTDIR everything is below it, the driver file too, and names what will be there in the end; it can run there."""
    for prefix, etc in (("/usr/local", "/etc"), ("/usr", "/etc"), ("/opt/etherwarp", "/opt/etherwarp/etc"), (None, "/etc")):
        with tempfile.TemporaryDirectory(prefix="ewarp-install-") as folder:
            stage = pathlib.Path(folder)
            names = install(prefix, stage)
            prefix = prefix or "/usr/local"
            driver = f"{etc}/libibverbs.d/etherwarp.driver"
            check(names and all(name.startswith(str(stage)) for name in names), f"not all below {stage}: {names}")
            ends = {str(pathlib.Path("/") / pathlib.Path(name).relative_to(stage)) for name in names}
            stray = [name for name in ends if not name.startswith(f"{prefix}/") and name != driver]
            check(driver in ends and not stray, f"{driver}; astray: {stray}")
            there = {str(pathlib.Path("/") / f.relative_to(stage)) for f in stage.rglob("*") if not f.is_dir()}
            check(there == ends, f"there are {there}, and it says {ends}")
            said = (stage / driver[1:]).read_text(encoding="utf-8")
            check(said == f"driver {prefix}/lib/libibverbs/libetherwarp\n", f"the driver file says: {said}")
            check(str(stage) not in said, said)
            for word in ("-rdmav34.so", "-rdmav65.so"):
                provider = stage / f"{prefix[1:]}/lib/libibverbs/libetherwarp{word}"
                check(provider.exists(), f"no {provider}: what libibverbs makes of the driver file")
            listed = shell(rig, f"env -i PATH=$PATH {stage}{prefix}/bin/etherwarp run -- ibv_devices")
            check("ewarp_lo" in listed, f"no devices from {stage}{prefix}:\n{listed}")
    print("  /usr/local, /usr, /opt/etherwarp")


def components(rig):
    """Each file belongs to one of the two components, of which cmake/Package.cmake makes packages; runtime runs alone."""
    need("ibv_devices")
    with tempfile.TemporaryDirectory(prefix="ewarp-install-") as folder:
        parts = {}
        for component in (None, "runtime", "development"):
            stage = pathlib.Path(folder) / str(component)
            install("/usr", stage, component)
            parts[component] = {str(f.relative_to(stage)) for f in stage.rglob("*") if not f.is_dir()}
        both = parts["runtime"] & parts["development"]
        check(not both, f"in both components: {both}")
        neither = parts[None] ^ (parts["runtime"] | parts["development"])
        check(not neither, f"in no component, or only in one: {neither}")
        listed = shell(rig, f"env -i PATH=$PATH {folder}/runtime/usr/bin/etherwarp run -- ibv_devices")
        check("ewarp_lo" in listed, f"no devices from the component runtime:\n{listed}")
        print(f"  runtime {len(parts['runtime'])} files, development {len(parts['development'])}")


def removal(rig):
    """build/install_manifest.txt names every file that was installed."""
    del rig
    with tempfile.TemporaryDirectory(prefix="ewarp-install-") as folder:
        prefix = pathlib.Path(folder) / "prefix"
        install(prefix)
        for name in (BUILD / "install_manifest.txt").read_text(encoding="utf-8").split():
            check(name.startswith(f"{prefix}/"), f"the manifest names {name}")
            pathlib.Path(name).unlink()
        left = [str(f) for f in prefix.rglob("*") if not f.is_dir()]
        check(not left, f"not in the manifest: {left}")


def ci_job(rig):
    """docs/user/ci_job.sh, with what is installed below a prefix."""
    need("rping", "ib_send_lat", "timeout")
    with installed(rig) as prefix:
        job = ROOT / "docs" / "user" / "ci_job.sh"
        said = shell(rig, f"env -i PATH={prefix}/bin:$PATH ETHERWARP_RUNDIR={rig.rundir} {job}", 60)
        check(re.search(r"^\s*2\s+1000(\s+[\d.]+){7}", said, re.M), f"no figures of ib_send_lat:\n{said}")
        octets = [sum(d["tx_octets"] for d in p["devices"]) for p in rig.ended()]
        check(len(octets) == 4 and min(octets) > 0, f"octets by EtherWARP's counters: {octets}\n{said}")


def programs(rig):
    """A program compiled with each .pc file of the installed tree, and run; again where the tree was moved to."""
    need("cc", "c++", "pkg-config")
    with installed(rig) as first:
        moved = first.parent / "moved"
        shutil.copytree(first, moved, symlinks=True)
        shutil.rmtree(first)
        rig.etherwarp = str(moved / "bin" / "etherwarp")
        found = sorted(f.stem for f in (moved / "lib" / "pkgconfig").glob("*.pc"))
        check(tuple(found) == LIBRARIES, f"the .pc files are {found}")
        loader = {"env": {"LD_LIBRARY_PATH": str(moved / "lib")}}

        # etherwarp.pc names files: a program on verbs, with EtherWARP under it.
        verbs = compiled(rig, moved, "verbs", VERBS, "etherwarp", "libibverbs")
        said = shell(rig, f"LD_PRELOAD=$(pkg-config --variable=preload etherwarp) {verbs}",
                     env={"PKG_CONFIG_PATH": str(moved / "lib" / "pkgconfig")})  # fmt: skip
        check("opened ewarp_lo" in said, f"with the preload library that etherwarp.pc names:\n{said}")
        provider = shell(rig, "pkg-config --variable=provider etherwarp",
                         env={"PKG_CONFIG_PATH": str(moved / "lib" / "pkgconfig")}).strip()  # fmt: skip
        check(pathlib.Path(provider).resolve() == moved / "lib/libibverbs/libetherwarp-rdmav34.so", provider)

        # etherwarpdv.pc, in C and in C++.
        for compiler in ("cc", "c++"):
            said = rig.run([compiled(rig, moved, f"direct-{compiler}", DIRECT, "etherwarpdv", compiler=compiler)], **loader)
            check(re.match(r"RD 1, messages of [1-9]\d+$", said), f"etherwarpdv, {compiler}: {said}")

        # The examples that are installed, of verbs and of reliable datagrams.
        examples = moved / "share/doc/etherwarp/examples"
        for name in ("rd_ping", "rd_many"):
            compiled(rig, moved, name, [examples / f"{name}.c", examples / "rd_end.c"], "etherwarpdv", "libibverbs")
        compiled(rig, moved, "media", [examples / "ud_media_stream.c", "-lm"], "libibverbs")

        # etherwarp-acp.pc: its example, and the same in C++.
        for compiler in ("cc", "c++"):
            options = "-Wall -Wextra" + (" -x c++ -fpermissive" if compiler == "c++" else "")
            acp = compiled(rig, moved, f"acp-{compiler}", [examples / "acp_ring.c"], "etherwarp-acp", compiler=compiler, options=options)
            said = shell(rig, f"{rig.etherwarp} acprun -n 4 {acp} 100", **loader)
            check("4 processes, 100 rounds: right" in said, said)

        # etherwarp-channel.pc: its example.
        pingpong = compiled(rig, moved, "pingpong", [examples / "channel_pingpong.cc"], "etherwarp-channel", compiler="c++",
                            options="-std=c++20 -Wall")  # fmt: skip
        port = free_port()
        run = rig.pair("channel_pingpong", [pingpong, f"127.0.0.1:{port}"],
                       [pingpong, "127.0.0.1:0", f"127.0.0.1:{port}", 4096, 100], port, 2 * 100 * 4096)  # fmt: skip
        check("4096 octets:" in run.client, run.client)


def gravel(rig):
    """Gravel's examples, compiled with gravel-openmpi.pc in C, Fortran and FORTRAN 77, and run by the installed tool."""
    need("mpicc.openmpi", "mpifort.openmpi")
    with installed(rig) as prefix:
        examples = prefix / "share/doc/etherwarp/examples"
        for source, compiler in (("ring1d.c", "mpicc.openmpi"), ("ring1d.f90", "mpifort.openmpi"),
                                 ("wavefront2d.f", "mpifort.openmpi")):  # fmt: skip
            program = compiled(rig, prefix, source.replace(".", "-"), [examples / f"gravel_{source}"], "gravel-openmpi",
                               compiler=compiler, options="-Wall")  # fmt: skip
            said = shell(rig, " ".join(map(str, [rig.etherwarp, "mpirun", *as_anybody(), "-n", 2, program])), 60,
                         env={"LD_LIBRARY_PATH": str(prefix / "lib")})  # fmt: skip
            check("verified" in said, said)


def manual_page(rig):
    """`man etherwarp` finds the page below the prefix."""
    need("man")
    with installed(rig) as prefix:
        page = shell(rig, "man etherwarp", env={"MANPATH": str(prefix / "share" / "man"), "MANPAGER": "cat"})
        check("SYNOPSIS" in page and "doctor" in page, page)


if __name__ == "__main__":
    main(tool, destdir, components, removal, ci_job, programs, gravel, manual_page)
