#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# A job of continuous integration that tests verbs programs without RDMA hardware. It runs in the image of Containerfile,
# or wherever the package etherwarp is installed. rping and ib_send_lat stand for the programs of your own.
set -eu

etherwarp doctor

export ETHERWARP_INTERFACES=lo           # one device: ewarp_lo
export ETHERWARP_REFUSED_WAIT_MS=10000   # a client may begin before its server listens
export ETHERWARP_STATS_KEEP=yes          # the counters stay when a program ends
export ETHERWARP_RUNDIR="${ETHERWARP_RUNDIR:-$(mktemp -d)}"
eval "$(etherwarp env)"

# Each program ends after 60 s at the latest; the job fails if one of them does.
timeout 60 rping -s -a 127.0.0.1 -C 100 -V &
server=$!
timeout 60 rping -c -a 127.0.0.1 -C 100 -V
wait "$server"

timeout 60 ib_send_lat -R -F -n 1000 &
server=$!
timeout 60 ib_send_lat -R -F -n 1000 127.0.0.1
wait "$server"

# What went over EtherWARP: a line for each process and device.
etherwarp stat --ended
