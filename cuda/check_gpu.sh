#!/usr/bin/env bash
# What only a GPU can tell, in under eight minutes: builds the CUDA library for the device of this machine, runs its test
# alone and under compute-sanitizer, the benchmark, and the peers, and writes one JSON file.
#
#   cuda/check_gpu.sh [--json FILE] [--build FOLDER] [--quick] [--skip STEP]... [-D NAME=VALUE]...
#
# Steps: build test memcheck racecheck initcheck synccheck bench peers. --quick: the cases of the benchmark with a bar only.
# -D goes to CMake, as SYMPOW_CUDA_INSTANTIATIONS=2:64. TEST_ARGUMENTS and SANITIZER_TEST_ARGUMENTS go to device_test.
#
# Not c_on_device: the C interface holds the library for CPUs, Eigen and minutes of compiling; ./dev cuda runs it on a GPU.
# racecheck knows cp.async, but not what bulk copies and their barriers order: it reports a race between a bulk copy into
# shared memory and its readers, where the mbarrier between them is the order. No kernel here uses them so far.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2

json=build/check_gpu.json folder=build/check_gpu quick='' skipped=' ' defines=()
while [ $# -gt 0 ]; do
  case $1 in
    --json) json=$2; shift 2 ;;
    --build) folder=$2; shift 2 ;;
    --quick) quick=--quick; shift ;;
    --skip) skipped+="$2 "; shift 2 ;;
    -D) defines+=(-D "$2"); shift 2 ;;
    -D?*) defines+=("$1"); shift ;;
    *) sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
done
if ! nvidia-smi --query-gpu=name --format=csv,noheader >/dev/null 2>&1; then
  echo 'There is no GPU here: nothing is checked.'
  exit 0
fi
PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
mkdir -p "$folder" "$(dirname "$json")"
jobs=$(getconf _NPROCESSORS_ONLN)
architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d '.')
[ "$architecture" != 90 ] || architecture=90a  # products of four warps
steps='' failed=''

# The value of a property of the device, as a JSON string.
device() { nvidia-smi --query-gpu="$1" --format=csv,noheader | head -1 | sed 's/[\\"]//g; s/.*/"&"/'; }

# record NAME SECONDS STATUS: a line of the report. A step fails with its status; 124 ran out of time.
record() {
  printf '%-10s %5d s  %s\n' "$1" "$2" "$([ "$3" = 0 ] && echo passed || echo "FAILED ($3), see $folder/$1.log")"
  steps+="${steps:+, }{\"name\": \"$1\", \"seconds\": $2, \"status\": $3}"
  [ "$3" = 0 ] || failed+=" $1"
}

wanted() { [[ $skipped != *" $1 "* ]]; }

# step NAME SECONDS COMMAND...: runs it with a limit of time; its output goes into a file.
step() {
  local name=$1 limit=$2 begin=$SECONDS status=0
  shift 2
  wanted "$name" || return 0
  timeout "$limit" "$@" >"$folder/$name.log" 2>&1 || status=$?
  record "$name" $((SECONDS - begin)) $status
  return $status
}

build() {
  local generator=()
  command -v ninja >/dev/null && generator=(-G Ninja)
  cmake -S cuda/check -B "$folder" "${generator[@]}" -D CMAKE_BUILD_TYPE=Release \
    -D CMAKE_CUDA_ARCHITECTURES="$architecture-real" "${defines[@]}" &&
    cmake --build "$folder" -j "$jobs"
}
export -f build
export folder architecture jobs
begin=$SECONDS status=0
if wanted build; then
  build >"$folder/build.log" 2>&1 || status=$?
  record build $((SECONDS - begin)) $status
  [ $status = 0 ] || grep -E 'error|FAILED' "$folder/build.log" | head -20
fi

test=$folder/device_test
if [ $status = 0 ] && [ -x "$test" ]; then
  # shellcheck disable=SC2086
  step test 120 "$test" ${TEST_ARGUMENTS:-} || tail -20 "$folder/test.log"
  # The four tools beside each other: they wait for one core each, and leave most of the GPU alone.
  declare -A running
  begin=$SECONDS
  for tool in memcheck racecheck initcheck synccheck; do
    if ! wanted "$tool" || ! command -v compute-sanitizer >/dev/null; then continue; fi
    # shellcheck disable=SC2086
    timeout 170 compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 20 \
      "$test" ${SANITIZER_TEST_ARGUMENTS:-} >"$folder/$tool.log" 2>&1 &
    running[$tool]=$!
  done
  for tool in memcheck racecheck initcheck synccheck; do
    [ -n "${running[$tool]:-}" ] || continue
    tool_status=0
    wait "${running[$tool]}" || tool_status=$?
    record "$tool" $((SECONDS - begin)) $tool_status
    grep -E 'ERROR SUMMARY|RACECHECK SUMMARY|Error: |Invalid|hazard' "$folder/$tool.log" | head -5
  done
fi

bench=null peers=null
if [ $status = 0 ]; then
  rm -f "$folder/bench.json" "$folder/peers.json"
  step bench 150 "$folder/bench/sympow_cuda_bench" $quick --json "$folder/bench.json"
  [ -f "$folder/bench.log" ] && wanted bench && cat "$folder/bench.log"
  [ -f "$folder/bench.json" ] && bench=$(cat "$folder/bench.json")
  if command -v python3 >/dev/null; then
    step peers 90 python3 cuda/bench/peers.py --json "$folder/peers.json"
    [ -f "$folder/peers.log" ] && wanted peers && cat "$folder/peers.log"
    [ -f "$folder/peers.json" ] && peers=$(cat "$folder/peers.json")
  fi
fi

cat >"$json" <<END
{"device": $(device name), "driver": $(device driver_version), "clock": $(device clocks.max.sm),
"memory_clock": $(device clocks.max.mem), "power_limit": $(device power.limit), "toolkit": "$(nvcc --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')",
"commit": "$(git rev-parse --short HEAD 2>/dev/null)", "seconds": $SECONDS,
"steps": [$steps],
"bench": $bench,
"peers": $peers}
END
echo "$SECONDS s, $json"
[ -z "$failed" ] || { echo "failed:$failed"; exit 1; }
