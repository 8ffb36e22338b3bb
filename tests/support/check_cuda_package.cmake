# sympow::cuda as its users meet it: the component cuda, installed and found by find_package, and in sympow::c.
# cmake -D BUILD=<build folder> -D COMPILER=... -D GENERATOR=... -D EIGEN=<Eigen3_DIR> -D CUDA=<root> -D SCRATCH=... -P check_cuda_package.cmake
cmake_minimum_required(VERSION 3.25)

cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH tests)
file(REMOVE_RECURSE ${SCRATCH})
set(configure ${CMAKE_COMMAND} -S ${tests}/package/cuda -G ${GENERATOR} -D CMAKE_CXX_COMPILER=${COMPILER} -D Eigen3_DIR=${EIGEN}
  -D CUDAToolkit_ROOT=${CUDA})

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# Where it is not installed the package is not found, and says which component is missing.
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/plain --component Unspecified)
execute_process(COMMAND ${configure} -B ${SCRATCH}/without -D CMAKE_PREFIX_PATH=${SCRATCH}/plain
  RESULT_VARIABLE result OUTPUT_QUIET ERROR_VARIABLE complaint)
string(REGEX REPLACE "[ \n]+" " " complaint "${complaint}")
if(result EQUAL 0 OR NOT complaint MATCHES "The component cuda is not installed in")
  message(FATAL_ERROR "without the component cuda: ${complaint}")
endif()

foreach(component IN ITEMS Unspecified cuda c)
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/prefix --component ${component})
endforeach()
run(${configure} -B ${SCRATCH}/with -D CMAKE_PREFIX_PATH=${SCRATCH}/prefix)
run(${CMAKE_COMMAND} --build ${SCRATCH}/with)
run(${SCRATCH}/with/consumer)

# A program in C, by what stands behind the C interface.
run(${CMAKE_COMMAND} -S ${tests}/../examples/cuda_plugin -B ${SCRATCH}/plugin -G ${GENERATOR} -D CUDAToolkit_ROOT=${CUDA}
  -D CMAKE_PREFIX_PATH=${SCRATCH}/prefix)
run(${CMAKE_COMMAND} --build ${SCRATCH}/plugin)
run(${SCRATCH}/plugin/cuda_plugin)
