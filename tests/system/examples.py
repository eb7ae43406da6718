# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The examples of provider/examples, as their headers say to run them."""
import pathlib
import re

from harness import BUILD, check, main, wait_until

FRAME = 960  # octets of 10 ms of sound


def stream(rig, skip, netns=(None, None), options=()):
    """ud_media_stream for a second; its report, and the file that was played."""
    program = BUILD / "bin" / "ud_media_stream"
    file = pathlib.Path(rig.rundir) / f"sound-{skip}.pcm"
    receiver = rig.start([program, "receive", file], netns=netns[0], options=options, name="ud_media_stream receive")
    where = wait_until(lambda: re.search(r"send to (\S+) (0x[0-9a-f]+)", receiver.output()), 15,
                       lambda: f"it does not say where it is\n{receiver.said()}")  # fmt: skip
    said = rig.run([program, "send", where[1], where[2], 1, skip], netns=netns[1], options=options)
    receiver.must_end_well(20)
    report = re.findall(r"^(\d+) frames: heard (\d+), concealed (\d+) \([\d.]+ %\), late (\d+); jitter \d+ us$",
                        receiver.output(), re.M)  # fmt: skip
    check(report, f"no report\n{receiver.said()}")
    rig.ended()
    return said, [int(n) for n in report[-1]], file.read_bytes()


def media_stream(rig):
    """A sound arrives in full length, whole or with every tenth frame missing; what is missing is concealed."""
    said, report, whole = stream(rig, 0)
    check("sent 100 of 100 frames" in said and report == [100, 100, 0, 0], f"{said}{report}")
    check(len(whole) == 100 * FRAME, f"{len(whole)} octets of sound")
    said, report, holed = stream(rig, 10)
    # The last frame is never left out: it ends the stream.
    check("sent 91 of 100 frames" in said and report == [100, 91, 9, 0], f"{said}{report}")
    check(len(holed) == len(whole), f"{len(holed)} octets of sound, not {len(whole)}")
    for n in range(100):
        same = whole[n * FRAME : (n + 1) * FRAME] == holed[n * FRAME : (n + 1) * FRAME]
        check(same == (n % 10 != 9 or n == 99), f"frame {n} is {'' if same else 'not '}what was sent")
    print(f"  100 frames, 9 of them concealed: {len(holed)} octets of sound")


if __name__ == "__main__":
    main(media_stream)
