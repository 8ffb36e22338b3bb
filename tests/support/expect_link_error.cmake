# A program whose linking must fail and name what is missing; with SYMPOW_CONTROL defined it must link and run.
# cmake -D COMPILER=... -D INCLUDES=... -D SOURCE=... -D NAMES=<expression that the message matches> -D SCRATCH=<folder> -P expect_link_error.cmake
cmake_minimum_required(VERSION 3.25)

file(MAKE_DIRECTORY ${SCRATCH})
set(ENV{LC_ALL} C.UTF-8)
list(TRANSFORM INCLUDES PREPEND "-isystem")
set(build ${COMPILER} -std=c++20 ${INCLUDES} ${SOURCE} -o ${SCRATCH}/program)

execute_process(COMMAND ${build} -DSYMPOW_CONTROL COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${SCRATCH}/program COMMAND_ERROR_IS_FATAL ANY)

execute_process(COMMAND ${build} RESULT_VARIABLE failed ERROR_VARIABLE messages)
if(NOT failed)
  message(FATAL_ERROR "${SOURCE} links, but nothing instantiates what it needs")
endif()
if(NOT messages MATCHES "${NAMES}")
  message(FATAL_ERROR "the linker does not name ${NAMES}:\n${messages}")
endif()
message(STATUS "refused as it must be: undefined reference to ${NAMES}")
