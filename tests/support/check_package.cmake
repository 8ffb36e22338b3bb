# The library as its users meet it: installed and found by find_package, as a subdirectory of their project, and out of an archive.
# cmake -D BUILD=<build folder> -D COMPILER=... -D GENERATOR=... -D EIGEN=<Eigen3_DIR> -D FLAGS=... -D SCRATCH=... -P check_package.cmake
cmake_minimum_required(VERSION 3.25)

cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH tests)
file(REMOVE_RECURSE ${SCRATCH})

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

function(consume how)
  message(STATUS "consumer: ${how}")
  run(${CMAKE_COMMAND} -S ${tests}/package -B ${SCRATCH}/${how} -G ${GENERATOR} -D CMAKE_CXX_COMPILER=${COMPILER}
    -D Eigen3_DIR=${EIGEN} "-DCMAKE_CXX_FLAGS=${FLAGS}" ${ARGN})
  run(${CMAKE_COMMAND} --build ${SCRATCH}/${how})
  run(${SCRATCH}/${how}/consumer)
  if(EXISTS ${SCRATCH}/${how}/consumer_of_gradients)
    run(${SCRATCH}/${how}/consumer_of_gradients)
  endif()
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/prefix)
consume(find_package -D CMAKE_PREFIX_PATH=${SCRATCH}/prefix)
consume(add_subdirectory -D SYMPOW_AS_SUBDIRECTORY=ON)

# An archive of the last commit, where the sources are a checkout.
cmake_path(GET tests PARENT_PATH sources)
if(EXISTS ${sources}/.git)
  run(git -C ${sources} archive --prefix=sympow/ --output=${SCRATCH}/sympow.tar.gz HEAD)
  consume(fetch_content -D SYMPOW_AS_SUBDIRECTORY=ON -D SYMPOW_ARCHIVE=file://${SCRATCH}/sympow.tar.gz)
endif()

# A program in C finds the C interface where there is no Eigen.
if(EXISTS ${SCRATCH}/prefix/include/sympow.h)
  message(STATUS "consumer: C")
  run(${CMAKE_COMMAND} -S ${tests}/package/c -B ${SCRATCH}/c -G ${GENERATOR} -D CMAKE_PREFIX_PATH=${SCRATCH}/prefix
    -D CMAKE_DISABLE_FIND_PACKAGE_Eigen3=ON)
  run(${CMAKE_COMMAND} --build ${SCRATCH}/c)
  run(${SCRATCH}/c/c_consumer ${SCRATCH}/c/states.bin)
endif()

# Without CMake.
find_program(PKG_CONFIG NAMES pkg-config pkgconf)
if(PKG_CONFIG)
  file(GLOB_RECURSE pc ${SCRATCH}/prefix/*/sympow.pc)
  cmake_path(GET pc PARENT_PATH folder)
  set(ENV{PKG_CONFIG_PATH} ${folder}:$ENV{PKG_CONFIG_PATH})
  execute_process(COMMAND ${PKG_CONFIG} --exists eigen3 RESULT_VARIABLE no_eigen)
  if(NOT no_eigen)
    message(STATUS "consumer: pkg-config")
    run(sh -c "${COMPILER} ${FLAGS} -std=c++20 ${tests}/package/main.cpp $(${PKG_CONFIG} --cflags --libs sympow) -o ${SCRATCH}/by_pkg_config")
    run(${SCRATCH}/by_pkg_config)
  endif()
  if(EXISTS ${folder}/sympow_c.pc)
    run(sh -c "cc -std=c11 ${tests}/c/program.c $(${PKG_CONFIG} --cflags --libs sympow_c) -lm -o ${SCRATCH}/c_by_pkg_config")
  endif()
  # The same where the folder of libraries is Debian's.
  set(deep ${SCRATCH}/deep)
  run(${CMAKE_COMMAND} -S ${sources} -B ${deep}/build -G ${GENERATOR} -D CMAKE_CXX_COMPILER=${COMPILER} -D Eigen3_DIR=${EIGEN} -D SYMPOW_CUDA=OFF
    -D SYMPOW_BUILD_TESTS=OFF -D SYMPOW_BUILD_EXAMPLES=OFF -D SYMPOW_BUILD_BENCH=OFF -D CMAKE_INSTALL_LIBDIR=lib/x86_64-linux-gnu)
  run(${CMAKE_COMMAND} --install ${deep}/build --prefix ${deep} --component Unspecified)
  execute_process(COMMAND ${PKG_CONFIG} --variable=prefix ${deep}/lib/x86_64-linux-gnu/pkgconfig/sympow.pc
    OUTPUT_VARIABLE prefix OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  if(NOT EXISTS ${prefix}/include/sympow/sympow.hpp)
    message(FATAL_ERROR "pkg-config names a folder without headers: ${prefix}")
  endif()
endif()

# Where Eigen is missing or of another version, sympow is a package that was not found: an error only to those who require it.
file(WRITE ${SCRATCH}/optional/CMakeLists.txt [=[
cmake_minimum_required(VERSION 3.25)
project(optional LANGUAGES NONE)
find_package(sympow)
if(sympow_FOUND)
  message(FATAL_ERROR "sympow is found without its Eigen")
endif()
]=])
file(WRITE ${SCRATCH}/old_eigen/Eigen3Config.cmake "set(Eigen3_VERSION 3.3.9)\nadd_library(Eigen3::Eigen INTERFACE IMPORTED)\n")
foreach(without IN ITEMS CMAKE_DISABLE_FIND_PACKAGE_Eigen3=ON Eigen3_DIR=${SCRATCH}/old_eigen)
  message(STATUS "consumer: optional, ${without}")
  run(${CMAKE_COMMAND} -S ${SCRATCH}/optional -B ${SCRATCH}/optional/build --fresh -D CMAKE_PREFIX_PATH=${SCRATCH}/prefix -D ${without})
endforeach()

# configure(NAME TEXT): a project that need only be generated.
function(configure name text)
  message(STATUS "consumer: ${name}")
  file(WRITE ${SCRATCH}/${name}/mine.cpp "int mine() { return 1; }\n")
  file(WRITE ${SCRATCH}/${name}/CMakeLists.txt "${text}")
  run(${CMAKE_COMMAND} -S ${SCRATCH}/${name} -B ${SCRATCH}/${name}/build -G ${GENERATOR} -Wno-dev -D CMAKE_CXX_COMPILER=${COMPILER}
    -D Eigen3_DIR=${EIGEN} -D CMAKE_PREFIX_PATH=${SCRATCH}/prefix -D SYMPOW_CUDA=OFF)
endfunction()

# Around the sources: a project with an Eigen target of its own, and one that exports what links with each of our targets.
configure(own_eigen "cmake_minimum_required(VERSION 3.25)
project(own_eigen LANGUAGES CXX)
add_library(eigen INTERFACE)
add_library(Eigen3::Eigen ALIAS eigen)
add_subdirectory(${sources} sympow)
")
configure(exports "cmake_minimum_required(VERSION 3.25)
project(exports LANGUAGES CXX)
add_subdirectory(${sources} sympow)
foreach(target IN ITEMS sympow forms gradients c)
  add_library(on_\${target} STATIC EXCLUDE_FROM_ALL mine.cpp)
  target_link_libraries(on_\${target} PUBLIC sympow::\${target})
  install(TARGETS on_\${target} EXPORT exports OPTIONAL)
endforeach()
install(EXPORT exports DESTINATION exports)
")

# What is not built of it is not installed, and the package is whole without it.
run(${CMAKE_COMMAND} --install ${SCRATCH}/exports/build --prefix ${SCRATCH}/part)
configure(part "cmake_minimum_required(VERSION 3.25)
project(part LANGUAGES CXX)
find_package(sympow REQUIRED PATHS ${SCRATCH}/part NO_DEFAULT_PATH)
if(TARGET sympow::forms OR TARGET sympow::gradients OR TARGET sympow::c)
  message(FATAL_ERROR \"a library is found that is not installed\")
endif()
")

# Around the package: a project of before policies that it needs, and its components by their names.
set(components "")
if(EXISTS ${SCRATCH}/prefix/include/sympow.h)
  set(components COMPONENTS forms gradients c)
endif()
configure(old_project "cmake_minimum_required(VERSION 3.2)
project(old_project CXX)
find_package(sympow REQUIRED ${components})
")

# CMake below 3.23 knows no file sets.
file(GLOB_RECURSE targets ${SCRATCH}/prefix/*/sympowTargets.cmake ${SCRATCH}/prefix/*/sympowCTargets.cmake)
foreach(file IN LISTS targets)
  file(STRINGS ${file} folders REGEX "^ +INTERFACE_INCLUDE_DIRECTORIES")
  if(NOT folders)
    message(FATAL_ERROR "${file} names headers in a file set alone")
  endif()
endforeach()

# Packages that name a version name that of the library.
file(STRINGS ${sources}/CMakeLists.txt version REGEX "^project\\(sympow VERSION ")
string(REGEX MATCH "[0-9.]+" version "${version}")
foreach(file IN ITEMS vcpkg/vcpkg.json conda/recipe.yaml debian/changelog)
  file(STRINGS ${sources}/packaging/${file} line REGEX "version: \"|\"version\":|^sympow-attention " LIMIT_COUNT 1)
  if(NOT line MATCHES "[\"(]${version}[-\"]")
    message(FATAL_ERROR "packaging/${file} is not of version ${version}: ${line}")
  endif()
endforeach()
