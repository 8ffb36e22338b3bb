# The C library shows the functions that its header declares, and no other name.
# cmake -D NM=... -D LIBRARY=libsympow_c.so -D HEADER=sympow.h -P check_c_symbols.cmake
cmake_minimum_required(VERSION 3.25)

file(READ ${HEADER} text)
string(REGEX MATCHALL "SYMPOW_API [^;(]*[ *](sympow_[a-z_0-9]+)\\(" declared "${text}")
list(TRANSFORM declared REPLACE ".*[ *](sympow_[a-z_0-9]+)\\($" "\\1")
list(SORT declared)

execute_process(COMMAND ${NM} --dynamic --defined-only --format=just-symbols ${LIBRARY}
  OUTPUT_VARIABLE shown OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" shown "${shown}")
list(SORT shown)

list(LENGTH declared count)
if(count LESS 10 OR NOT shown STREQUAL declared)
  message(FATAL_ERROR "declared: ${declared}\nshown:    ${shown}")
endif()
