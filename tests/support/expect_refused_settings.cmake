# Compilers' settings under which results would be wrong: each must be refused in a sentence of the library's own.
# cmake -D COMPILER=... -D "INCLUDES=..." -D "SETTINGS=..." -P expect_refused_settings.cmake
cmake_minimum_required(VERSION 3.25)

list(TRANSFORM INCLUDES PREPEND "-isystem")
set(compile ${COMPILER} -std=c++20 ${INCLUDES} -include sympow/core/concepts.hpp -include sympow/core/checks.hpp -x c++ /dev/null)
execute_process(COMMAND ${compile} -fsyntax-only COMMAND_ERROR_IS_FATAL ANY)
foreach(setting IN LISTS SETTINGS)
  set(stage -E -o /dev/null)  # compilers' own settings are refused by the preprocessor
  if(setting MATCHES "^-D")
    set(stage -fsyntax-only)
  endif()
  execute_process(COMMAND ${compile} ${stage} ${setting} RESULT_VARIABLE failed ERROR_VARIABLE messages)
  if(NOT failed OR NOT messages MATCHES "sympow (needs|keeps|throws)[^\n]*: .*compile with")
    message(FATAL_ERROR "${setting} is not refused with a sentence:\n${messages}")
  endif()
endforeach()
