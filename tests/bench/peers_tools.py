# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The tools that `peers_bench.py` runs: ours over EtherWARP, and what users would take instead.

Each function runs a server and its client to their ends between the two ends of a Place, and gives figures: "value" in
the unit of the case, and "p99" and "p999" where the tool tells them of enough samples.
"""
import collections
import contextlib
import json
import re
import resource
import shutil

from common import Failure, Rig, Skip, as_words, cpu_sets, fair_namespace, free_port, run_to_end, wait_until, with_defaults
from harness import listens

# A quantile of fewer samples than this says nothing.
SAMPLES = {"p99": 1000, "p999": 10000}
PERCENT = {"value": "50", "p99": "99", "p999": "99.9"}
QPERF_SECONDS = 1  # the least that qperf takes
MOST_OF_IPERF3 = 1 << 20  # octets of its largest block over TCP
GIB = 1 << 30
SHORTEST_PACED = 8 << 20  # octets: 64 messages of 128 KiB, the fewest of ewarp_verbs_paced
# Debian's package of each program that is not ours.
PACKAGES = {"ib_send_lat": "perftest", "ucx_perftest": "ucx-utils", "fi_pingpong": "libfabric-bin", "qperf": "qperf",
            "iperf3": "iperf3", "taskset": "util-linux"}  # fmt: skip

# mtu: None on the loopback interface, which one namespace is made for if there may be any.
Place = collections.namedtuple("Place", "name interface address mtu")
PLACES = (Place("loopback", "lo", "127.0.0.1", None),
          Place("veth, MTU 1500", "ew0", "10.99.0.1", 1500),
          Place("veth, MTU 9000", "ew0", "10.99.0.1", 9000))  # fmt: skip


def spent_by(run):
    """CPU seconds of the children that end in it, and its result."""
    def spent():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = spent()
    result = run()
    return spent() - before, result


def installed(program):
    return shutil.which(program) is not None


def quantiles(found, samples):
    """Those of a tool's that its samples are enough for; found: value, p99, p999."""
    return {name: v for name, v in found.items() if samples >= SAMPLES.get(name, 0)}


class Tools:
    def __init__(self, a, place, local="off"):
        self.a, self.place, self.local = a, place, local
        self.bin = a.build / "bin"
        self.ofi_stream = str(self.bin / "ewarp_ofi_stream")  # a build without libfabric has none
        self.rig = Rig(a.build)
        self.cpus = cpu_sets(a.server_cpus, a.client_cpus)
        self.hosts = (None, None)

    def open(self):
        """Skip where there may be no namespaces, but for the loopback interface."""
        if self.place.mtu is None:
            with contextlib.suppress(Skip):
                self.hosts = (fair_namespace(self.rig, "lo"),) * 2
        else:
            self.hosts = tuple(fair_namespace(self.rig, f"{end}{self.place.mtu}") for end in "ab")
            self.rig.veth(*self.hosts)
            for host in self.hosts:
                self.rig.ip("-n", host, "link", "set", self.place.interface, "mtu", self.place.mtu)

    def close(self):
        self.rig.close()

    # Two processes.

    def options(self, local, crc):
        return [*as_words(with_defaults([*self.a.option, f"local={local}"], self.cpus)), "--crc", crc]

    def over_etherwarp(self, name, words, port, least, crc="by_path", local=None, env=None):
        """What the client says; the octets went over EtherWARP, through memory or TCP as is asked for."""
        local = local or self.local
        how = [{"netns": host, "wrap": ["taskset", "-c", cpus], "options": self.options(local, crc), "env": env}
               for host, cpus in zip(self.hosts, self.cpus)]  # fmt: skip
        run = self.rig.pair(name, words, [*words, self.place.address], port, least, seconds=self.a.timeout,
                            server_how=how[0], client_how=how[1], quiet=True)  # fmt: skip
        if "--transport" not in words and (run.total("local_streams") > 0) != (local == "auto"):
            raise Failure(f"{name}: {run.total('local_streams')} streams through shared memory, with local={local}")
        return run.client

    def plain(self, server, client, port, env=None, server_ends=True):
        """What the client says. server_ends: it serves one client; else it is ended here."""
        words = [[*(["ip", "netns", "exec", host] if host else []), "taskset", "-c", cpus, *command]
                 for host, cpus, command in zip(self.hosts, self.cpus, (server, client))]  # fmt: skip
        serving = self.rig.start_plain(words[0], env, f"{server[0]}: server")
        asking = None
        try:
            wait_until(lambda: serving.status is not None or listens(serving.pid, port), 20,
                       lambda: f"the server does not listen\n{serving.said()}")  # fmt: skip
            if serving.status is not None:
                raise Failure(f"the server ended before its client came: status {serving.status}\n{serving.said()}")
            asking = self.rig.start_plain(words[1], env, f"{client[0]}: client")
            try:
                asking.must_end_well(self.a.timeout)
            except Failure as e:
                raise Failure(f"{e}\nthe server:\n{serving.said()}") from None
            if server_ends:
                serving.must_end_well(20)
            return asking.output()
        finally:
            for process in filter(None, (asking, serving)):
                self.rig.forget(process)

    # Raw TCP and UDP.

    def raw(self, mode, size, iterations, *more):
        port = free_port()
        words = [self.bin / "ewarp_bench_tcp", "--mode", mode, "--size", size, "--iterations", iterations,
                 "--warm-up", max(1, iterations // 20), "--address", self.place.address, "--port", port,
                 "--timeout", self.a.timeout, *more]  # fmt: skip
        out = self.plain([*words, "--role", "server"], [*words, "--role", "client"], port, server_ends="--udp" not in more)
        return json.loads(out)

    def raw_latency(self, size, n, *more):
        said = self.raw("poll", size, n, *more)["half_round_trip_us"]
        return quantiles({"value": said["median"], "p99": said["p99"], "p999": said["p999"]}, n)

    def raw_stream(self, size, n, *more):
        return {"value": self.raw("stream", size, n, *more)["gbit_per_s"]}

    def raw_rate(self, size, n):
        return {"value": n / self.raw("stream", size, n)["seconds"] / 1e6}

    # perftest.

    def perftest(self, tool, size, n, pairs=1, **how):
        """The numbers of the line that the client prints."""
        port = free_port()
        words = [tool, "-R", "-F", "-s", size, "-n", n, "-p", port]
        if tool.endswith("_bw"):
            # Up to 8 KiB perftest's warm-up waits without end for completions that it has not asked for.
            warm_up = ["--perform_warm_up"] if size > 8192 else []
            words += ["-N", "--report_gbits", *warm_up, *(["-q", pairs] if pairs > 1 else [])]
        out = self.over_etherwarp(f"{tool} {size}", words, port, size * n, **how)
        line = re.search(rf"^\s*{size}\s+{n * pairs}\s+(\S[^\n]*)$", out, re.M)
        if line is None:
            raise Failure(f"{tool}: no line of figures for {size} octets\n{out}")
        return [float(word) for word in line[1].split()]  # a deviation may be -nan

    def perftest_latency(self, tool, size, n, **how):
        """Half a round trip; what ib_read_lat measures is a whole one."""
        figures = self.perftest(tool, size, n, **how)
        part = 0.5 if tool == "ib_read_lat" else 1
        return quantiles({"value": figures[2] * part, "p99": figures[5] * part, "p999": figures[6] * part}, n)

    def perftest_bandwidth(self, tool, size, n, **how):
        return {"value": self.perftest(tool, size, n, **how)[1]}

    def perftest_rate(self, tool, size, n, **how):
        return {"value": self.perftest(tool, size, n, **how)[2]}

    # Our own C programs.

    def verbs(self, program, words, least, crc="by_path"):
        port = free_port()
        command = [self.bin / program, *words, "--device", f"ewarp_{self.place.interface}", "--port", port]
        out = self.over_etherwarp(program, command, port, least, crc=crc)
        return json.loads(next(line for line in out.splitlines() if line.startswith("{")))

    def verbs_latency(self, transport, size, n):
        said = self.verbs("ewarp_verbs_bench", ["--transport", transport, "--mode", "latency", "--size", size, "--iterations", n],
                          n * size)["half_round_trip_us"]  # fmt: skip
        return quantiles({"value": said["median"], "p99": said["p99"], "p999": said["p999"]}, n)

    def verbs_both_ways(self, transport, size):
        return {"value": self.verbs("ewarp_verbs_bench", ["--transport", transport, "--mode", "bandwidth", "--size", size,
                                                          "--seconds", self.a.seconds], size)["gbit_per_s"]}  # fmt: skip

    def pairs_latency(self, pairs, size, n):
        said = self.verbs("ewarp_verbs_pairs", ["--mode", "latency", "--pairs", pairs, "--size", size, "--iterations", n],
                          size * n)["half_round_trip_us"]  # fmt: skip
        return quantiles({"value": said["median"], "p99": said["p99"]}, n)

    # CPU time.

    def cpu_of(self, octets, run):
        """CPU seconds of both ends for each GiB: run(octets) starts and ends both, and gives the rate that they held. What it
        costs to start and to end them is taken off: that of a run with next to nothing to move."""
        nothing, _ = spent_by(lambda: run(SHORTEST_PACED))
        spent, rate = spent_by(lambda: run(octets))
        return {"value": (spent - nothing) * GIB / (octets - SHORTEST_PACED), "gbit_per_s": rate}

    def cpu_of_ours(self, size, octets, gbit, crc):
        """In event mode: ewarp_verbs_paced."""
        found = self.cpu_of(octets, lambda n: self.paced(size, n, gbit, crc))
        moved = sum(d["tx_octets"] for p in self.rig.ended() for d in p["devices"])
        if moved < octets:
            raise Failure(f"ewarp_verbs_paced: EtherWARP's counters show {moved} octets, not {octets}")
        return found

    def paced(self, size, octets, gbit, crc):
        """The rate. Starts nothing but the two processes: all children are counted."""
        port = free_port()
        words = [self.rig.etherwarp, "run", "--stats-keep", *self.options(self.local, crc), "--", self.bin / "ewarp_verbs_paced",
                 "--size", size, "--messages", octets // size, "--gbit", gbit, "--port", port,
                 "--device", f"ewarp_{self.place.interface}"]  # fmt: skip
        return json.loads(self.plain(words, [*words, self.place.address], port))["gbit_per_s"]

    def cpu_of_iperf3(self, size, octets, gbit):
        return self.cpu_of(octets, lambda n: self.iperf3("-n", n, "-l", size, "-b", f"{gbit}G")["value"])

    # UCX: ucx_perftest; transport: what UCX_TLS names.

    def ucx(self, test, size, n, transport, *more):
        """The numbers of the last line: iterations, quantile, averages and totals of latency, bandwidth, rate."""
        env = {"UCX_TLS": transport, "UCX_WARN_UNUSED_ENV_VARS": "n"}
        if "tcp" in transport:
            env["UCX_NET_DEVICES"] = self.place.interface
        port = free_port()
        words = ["ucx_perftest", "-p", port]
        out = self.plain(words, [*words, self.place.address, "-t", test, "-s", size, "-n", n, "-w", max(1, n // 20),
                                 "-f", "-v", *more], port, env)  # fmt: skip
        return [float(x) for x in self.csv(out)]

    @staticmethod
    def csv(out):
        lines = [line for line in out.splitlines() if re.fullmatch(r"[\d.]+(,[\d.]+){7}", line.strip())]
        if not lines:
            raise Failure(f"ucx_perftest: no line of figures\n{out}")
        return lines[-1].strip().split(",")

    def ucx_latency(self, size, n, transport="tcp,self", every_quantile=False):
        """One quantile is all that a run tells."""
        names = [name for name in PERCENT if name == "value" or (every_quantile and n >= SAMPLES[name])]
        return {name: self.ucx("tag_lat", size, n, transport, "-R", PERCENT[name])[1] for name in names}

    def ucx_bandwidth(self, size, n, transport="tcp,self"):
        return {"value": self.ucx("tag_bw", size, n, transport)[5] * (1 << 20) * 8e-9}  # it tells MiB/s

    def ucx_rate(self, size, n, transport="tcp,self"):
        return {"value": self.ucx("tag_bw", size, n, transport)[7] / 1e6}

    # libfabric.

    def fi_latency(self, provider, endpoint, size, n):
        """fi_pingpong tells the mean of half a round trip. It does not warm up, so a few do not do."""
        n = max(n, min(1000, GIB // size)) if not self.a.quick else n
        port = free_port()
        words = ["fi_pingpong", "-p", provider, "-e", endpoint, "-I", n, "-S", size]
        env = {"FI_TCP_IFACE": self.place.interface}
        out = self.plain([*words, "-B", port], [*words, "-P", port, self.place.address], port, env)
        # It shortens numbers (20000 is 20k); = says that all that was sent came back.
        line = re.search(r"^\S+\s+\S+\s+=\S+\s+\S+\s+\S+s\s+[\d.]+\s+([\d.]+)\s+[\d.]+\s*$", out, re.M)
        if line is None:
            raise Failure(f"fi_pingpong: no line of figures\n{out}")
        return {"value": float(line[1])}

    def fi_stream(self, size, n):
        """The client's word; ewarp_ofi_stream."""
        port = free_port()
        words = [self.ofi_stream, "--provider", "tcp;ofi_rxm", "--address", self.place.address, "--port", port,
                 "--size", size, "--iterations", n]  # fmt: skip
        return json.loads(self.plain(words, [*words, self.place.address], port))

    def fi_bandwidth(self, size, n):
        return {"value": self.fi_stream(size, n)["gbit_per_s"]}

    def fi_rate(self, size, n):
        return {"value": n / self.fi_stream(size, n)["seconds"] / 1e6}

    def fi_atomics(self, n, ours, local=None):
        """Thousands a second, one at a time; ewarp_ofi_stream."""
        port = free_port()
        words = [self.ofi_stream, "--atomics", "--provider", "etherwarp" if ours else "tcp;ofi_rxm",
                 "--address", self.place.address, "--port", port, "--size", 8, "--iterations", n]  # fmt: skip
        if ours:
            env = {"FI_PROVIDER_PATH": str(self.a.build / "lib" / "libfabric"), "FI_PROVIDER": "etherwarp"}
            said = self.over_etherwarp("ewarp_ofi_stream", words, port, 8 * n, local=local, env=env)
        else:
            said = self.plain(words, [*words, self.place.address], port, {"FI_TCP_IFACE": self.place.interface})
        return {"value": json.loads(said)["per_second"] / 1e3}

    # qperf.

    def qperf(self, test, size):
        """Microseconds or Gbit/s."""
        port = free_port()
        out = self.plain(["qperf", "-lp", port], ["qperf", self.place.address, "-lp", port, "-t", QPERF_SECONDS, "-m", size,
                                                  "-uu", test], port, server_ends=False)  # fmt: skip
        units = {"ns": 1e-3, "us": 1, "ms": 1e3, "sec": 1e6, "bytes/sec": 8e-9}
        line = re.search(r"^\s+(?:latency|bw|recv_bw)\s+=\s+([\d.]+) (\S+)$", out, re.M)
        if line is None or line[2] not in units:
            raise Failure(f"qperf {test}: no figure\n{out}")
        return {"value": float(line[1]) * units[line[2]]}

    def qperf_rate(self, size):
        return {"value": self.qperf("tcp_bw", size)["value"] * 1e3 / 8 / size}

    # iperf3.

    def iperf3(self, *words):
        """What arrived, Gbit/s; both directions summed where there are two."""
        port = free_port()
        out = self.plain(["iperf3", "-s", "-1", "-p", port], ["iperf3", "-c", self.place.address, "-p", port, "-J", *words], port)
        ends = json.loads(out)["end"]
        return {"value": sum(ends[name]["bits_per_second"] for name in ("sum_received", "sum_received_bidir_reverse")
                             if name in ends) * 1e-9}  # fmt: skip

    def iperf3_stream(self, size, octets, streams=1):
        return self.iperf3("-n", octets, "-l", min(size, MOST_OF_IPERF3), "-P", streams)

    def iperf3_datagrams(self, size):
        return self.iperf3("-u", "-b", 0, "--bidir", "-l", size, "-t", 1)


def mpi(a, peers, output, number):
    """What mpi_bench.py wrote of the round of this number."""
    words = ["python3", "-B", str(a.bench / "mpi_bench.py"), "--build", str(a.build), "--output", str(output), "--rounds", "1",
             "--turn", str(number), "--peers", peers, *(["--smoke"] if a.quick else ["latency", "bandwidth"]), "rate"]  # fmt: skip
    run_to_end(words, a.timeout * 6)
    return json.loads((output / "mpi.json").read_text(encoding="utf-8"))
