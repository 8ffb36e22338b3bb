# Whether two runs of device_test had the same bits: what device_test_on_host wrote to a file, and device_test.
# cmake -D ON_HOST=FILE -D ON_DEVICE=FILE -P same_bits.cmake
#
# On the host sums of an mma are cut toward zero, and a product and a sum are rounded each: so the device must do, too,
# and be compiled with -fmad=false.
cmake_minimum_required(VERSION 3.25)

file(STRINGS ${ON_HOST} on_host REGEX ", +bits [0-9a-f]+$")
file(STRINGS ${ON_DEVICE} on_device REGEX ", +bits [0-9a-f]+$")
list(LENGTH on_host count)
set(others ${on_host})
list(REMOVE_ITEM others ${on_device})
list(LENGTH others different)
message(STATUS "${count} runs on the host, ${different} of them with other bits on the device")
if(different OR NOT count)
  list(JOIN others "\n" text)
  message(FATAL_ERROR "${text}")
endif()
