# The library as its users meet it: installed and found by find_package, and as a subdirectory of their project.
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
  if(EXISTS ${SCRATCH}/${how}/consumer_of_forms)
    run(${SCRATCH}/${how}/consumer_of_forms)
  endif()
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/prefix)
consume(find_package -D CMAKE_PREFIX_PATH=${SCRATCH}/prefix)
consume(add_subdirectory -D SYMPOW_AS_SUBDIRECTORY=ON)

# A program in C finds the C interface where there is no Eigen.
if(EXISTS ${SCRATCH}/prefix/include/sympow.h)
  message(STATUS "consumer: C")
  run(${CMAKE_COMMAND} -S ${tests}/package/c -B ${SCRATCH}/c -G ${GENERATOR} -D CMAKE_PREFIX_PATH=${SCRATCH}/prefix
    -D CMAKE_DISABLE_FIND_PACKAGE_Eigen3=ON)
  run(${CMAKE_COMMAND} --build ${SCRATCH}/c)
  run(${SCRATCH}/c/c_consumer ${SCRATCH}/c/states.bin)
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
