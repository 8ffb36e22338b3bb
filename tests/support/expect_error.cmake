# A program that must not compile.  cmake -D COMPILER=... -D INCLUDES=... -D PARSED=... -D SOURCE=... -P expect_error.cmake
#
# Without SOURCE all headers are parsed, once for all such programs, into the file PARSED.gch; and all of the programs, which are
# together in CONTROLS, must compile with SYMPOW_CONTROL defined, so that none can fail for another reason.
# The first line of SOURCE is "// expect: <sentence>": the compiler must refuse it with that sentence among its messages, and in the
# first of them if FIRST says how it stops there.
cmake_minimum_required(VERSION 3.25)

set(ENV{LC_ALL} C.UTF-8)  # messages in English
list(TRANSFORM INCLUDES PREPEND "-isystem")
set(compile ${COMPILER} -std=c++20 -DSYMPOW_COMPILED_FORMS ${INCLUDES})  # nothing is instantiated that takes long

if(NOT DEFINED SOURCE)
  file(WRITE ${PARSED} "#include <sympow/sympow.hpp>\n")
  execute_process(COMMAND ${compile} -x c++-header ${PARSED} -o ${PARSED}.gch COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${compile} -fsyntax-only -include ${PARSED} -DSYMPOW_CONTROL -I ${CMAKE_CURRENT_LIST_DIR}/../static
    ${CONTROLS} COMMAND_ERROR_IS_FATAL ANY)
  return()
endif()
list(APPEND compile -fsyntax-only -include ${PARSED})

file(READ ${SOURCE} text)
if(NOT text MATCHES "^// expect: ([^\n]+)\n")
  message(FATAL_ERROR "${SOURCE}: the first line must be \"// expect: <sentence>\"")
endif()
set(sentence "${CMAKE_MATCH_1}")

execute_process(COMMAND ${compile} ${FIRST} ${SOURCE} RESULT_VARIABLE failed ERROR_VARIABLE messages)
if(NOT failed)
  message(FATAL_ERROR "${SOURCE} compiles, but must not; expected: ${sentence}")
endif()
string(FIND "${messages}" "${sentence}" position)
if(position EQUAL -1)
  message(FATAL_ERROR "${SOURCE} is refused without saying: ${sentence}\n${messages}")
endif()
string(REGEX MATCH "[^\n]*error:[^\n]*" first_error "${messages}")
message(STATUS "refused as it must be: ${first_error}")
