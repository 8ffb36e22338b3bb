# Writes a file that holds several others, each in a namespace of its own, so that what they all instantiate is compiled once.
# What they include stands before them: inside of a namespace it would be a part of it.
# cmake -D OUTPUT=... -D "SOURCES=a.cpp;b.cpp" -P together.cmake
cmake_minimum_required(VERSION 3.25)

set(includes "")
set(files "")
foreach(source IN LISTS SOURCES)
  file(STRINGS ${source} lines REGEX "^#include ")
  list(APPEND includes ${lines})
  cmake_path(GET source STEM name)
  string(APPEND files "namespace file_${name} {\n#include \"${source}\"\n}\n")
endforeach()
list(REMOVE_DUPLICATES includes)
list(JOIN includes "\n" includes)
file(WRITE ${OUTPUT} "${includes}\n\n${files}")
