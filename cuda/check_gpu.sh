#!/bin/sh
# What only a GPU can tell, in under six minutes, into one JSON file that is written after every step:
#
#   cuda/check_gpu.sh [--prebuilt PATH] [--json FILE] [--only STEP]... [--skip STEP]... [--small] [--build FOLDER] [-D NAME=VALUE]...
#
# Steps, in this order: device, build, gradients, gradients 2, training, rows, sanitizers, counters, peers, cases. The programs are
# built for the GPU of this machine, which takes minutes, or come from `./dev gpu-bundle`, which needs no GPU. The report goes to
# $OUT, or else to build. --small: short sequences, for an interpreter of PTX in the place of a GPU.
#
# racecheck knows cp.async, but not what mbarriers order: it reports races between the warps of the kernels for Hopper
# that copy and those that read, so these are left out of it; the other tools check them.
set -eu
cd "$(dirname "$0")/.."
PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}${CUDA_HOME:-/usr/local/cuda}/lib64
export PATH LD_LIBRARY_PATH
exec python3 cuda/check/run.py "$@"
