# Kernels: on the host, as nvcc compiles them, and on a GPU or the runtime that stands for one.

# Kernels of all powers on the host, a program for each file of cuda/long: built by the tests that run them.
if(TARGET test_cuda)
  add_custom_target(cuda_tests DEPENDS test_cuda $<TARGET_NAME_IF_EXISTS:test_c>)
  set_property(TEST cuda APPEND PROPERTY LABELS cuda)
  if(TEST c)  # the same calls on a CPU by a library that has kernels
    set_property(TEST c APPEND PROPERTY LABELS cuda)
  endif()
  add_custom_target(long_cuda_tests)
  add_test(NAME cuda.long_programs CONFIGURATIONS Long
    COMMAND ${CMAKE_COMMAND} --build ${PROJECT_BINARY_DIR} --config $<CONFIG> --target long_cuda_tests)
  set_tests_properties(cuda.long_programs PROPERTIES LABELS "long;cuda" FIXTURES_SETUP long_cuda_programs RUN_SERIAL ON)
  file(GLOB sources CONFIGURE_DEPENDS cuda/long/*_test.cpp)
  foreach(source IN LISTS sources)
    cmake_path(GET source STEM name)
    add_executable(cuda_${name} EXCLUDE_FROM_ALL ${source})
    target_link_libraries(cuda_${name} PRIVATE sympow_test_support)
    target_include_directories(cuda_${name} PRIVATE
      cuda ${PROJECT_SOURCE_DIR}/cuda/src ${PROJECT_SOURCE_DIR}/cuda/include)
    target_compile_options(cuda_${name} PRIVATE "$<$<CXX_COMPILER_ID:GNU,Clang,AppleClang>:-O2>")  # half of the time
    add_dependencies(long_cuda_tests cuda_${name})
    string(REGEX REPLACE "_test$" "" name ${name})
    add_test(NAME cuda.long_${name} CONFIGURATIONS Long COMMAND cuda_${name}_test)
    set_tests_properties(cuda.long_${name} PROPERTIES LABELS "long;cuda" TIMEOUT 3000 FIXTURES_REQUIRED long_cuda_programs)
  endforeach()
endif()

# The library with its kernels on the host, by the test for GPUs. Where both run, they say the same bits (same_bits.cmake).
if(TARGET test_cuda)
  file(GLOB sources CONFIGURE_DEPENDS cuda/device_test/*.cpp cuda/on_host/*.cpp)
  add_executable(device_test_on_host EXCLUDE_FROM_ALL ${sources})
  target_include_directories(device_test_on_host PRIVATE
    cuda/on_host ${PROJECT_SOURCE_DIR}/cuda/src ${PROJECT_SOURCE_DIR}/cuda/include)
  target_compile_features(device_test_on_host PRIVATE cxx_std_20)
  target_compile_options(device_test_on_host PRIVATE "$<$<CXX_COMPILER_ID:GNU,Clang,AppleClang>:-O2>")
  find_package(Threads REQUIRED)
  target_link_libraries(device_test_on_host PRIVATE Threads::Threads)
  add_dependencies(long_cuda_tests device_test_on_host)
  add_test(NAME cuda.device_test_on_host CONFIGURATIONS Long COMMAND device_test_on_host)
  set_tests_properties(cuda.device_test_on_host PROPERTIES LABELS "long;cuda" TIMEOUT 3000 FIXTURES_REQUIRED long_cuda_programs)
endif()

# Kernels and the library broken in their source, again and again: minutes of compiling for each list.
if(TARGET test_cuda AND NOT SYMPOW_SANITIZE)
  set(libraries $<TARGET_FILE:sympow_test_support>)
  if(Catch2_VERSION VERSION_GREATER_EQUAL 3)
    list(APPEND libraries $<TARGET_FILE:Catch2::Catch2WithMain> $<TARGET_FILE:Catch2::Catch2>)
  endif()
  add_test(NAME cuda.mutants_fit COMMAND ${CMAKE_COMMAND} -P ${CMAKE_CURRENT_SOURCE_DIR}/cuda/mutants.cmake)
  set_tests_properties(cuda.mutants_fit PROPERTIES LABELS cuda)
  file(GLOB lists CONFIGURE_DEPENDS cuda/mutants/*.cmake)
  list(FILTER lists EXCLUDE REGEX "/hopper")  # of kernels as compiled: below
  foreach(list IN LISTS lists)
    cmake_path(GET list STEM name)
    add_test(NAME cuda.mutants_${name} CONFIGURATIONS Long COMMAND ${CMAKE_COMMAND} -D "LIST=${name}"
      -D "COMPILER=${CMAKE_CXX_COMPILER}" -D "INCLUDES=$<TARGET_PROPERTY:Catch2::Catch2,INTERFACE_INCLUDE_DIRECTORIES>"
      -D "LIBRARIES=${libraries}" -D "SCRATCH=${CMAKE_CURRENT_BINARY_DIR}/mutants/${name}"
      -P ${CMAKE_CURRENT_SOURCE_DIR}/cuda/mutants.cmake)
    set_tests_properties(cuda.mutants_${name} PROPERTIES LABELS "long;cuda" TIMEOUT 3600)
  endforeach()
endif()

# The same kernels, as nvcc compiles them: without a warning, and without a register in memory. And the library on a GPU.
if(TARGET sympow_cuda)
  foreach(architecture IN ITEMS 80 90)
    foreach(kernel IN ITEMS row_sums gemm every_name)
      add_test(NAME cuda.${kernel}_sm_${architecture} COMMAND ${CMAKE_CUDA_COMPILER} -std=c++20 -O3 -arch=sm_${architecture}
        -Werror all-warnings -Xptxas -warn-spills -I${PROJECT_SOURCE_DIR}/cuda/src -cubin
        -o ${CMAKE_CURRENT_BINARY_DIR}/${kernel}_sm_${architecture}.cubin ${CMAKE_CURRENT_SOURCE_DIR}/cuda/${kernel}.cu)
      set_tests_properties(cuda.${kernel}_sm_${architecture} PROPERTIES LABELS cuda)
    endforeach()
  endforeach()
  # What nvcc makes of the library's kernels, beside what it made of them when the tables were written.
  get_directory_property(instantiations DIRECTORY ${PROJECT_SOURCE_DIR}/cuda DEFINITION default_instantiations)
  if(Python3_FOUND AND CMAKE_CUDA_COMPILER_ID STREQUAL "NVIDIA" AND SYMPOW_CUDA_INSTANTIATIONS STREQUAL instantiations)
    set(check_kernels ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/cuda/check/kernels.py --nvcc ${CMAKE_CUDA_COMPILER}
      --cxx ${CMAKE_CXX_COMPILER} --sources ${PROJECT_BINARY_DIR}/cuda/generated)
    add_test(NAME cuda.kernels COMMAND ${check_kernels} --architecture 90a --only *_2_64)
    set_tests_properties(cuda.kernels PROPERTIES LABELS cuda COST 200)
    foreach(architecture IN ITEMS 80 90a 120)
      add_test(NAME cuda.kernels_sm_${architecture} CONFIGURATIONS Long COMMAND ${check_kernels} --architecture ${architecture})
      set_tests_properties(cuda.kernels_sm_${architecture} PROPERTIES LABELS cuda TIMEOUT 1800)
    endforeach()
  endif()
  # The project of `./dev gpu-bundle` as far as it needs no minutes.
  add_test(NAME cuda.bundle COMMAND ${CMAKE_CTEST_COMMAND} --build-and-test ${PROJECT_SOURCE_DIR}/cuda/check
    ${CMAKE_CURRENT_BINARY_DIR}/bundle --build-generator ${CMAKE_GENERATOR} --build-target device_test_objects
    --build-options -D CMAKE_CUDA_COMPILER=${CMAKE_CUDA_COMPILER} -D CMAKE_CUDA_ARCHITECTURES=90a-real)
  set_tests_properties(cuda.bundle PROPERTIES LABELS cuda)
  file(GLOB sources CONFIGURE_DEPENDS cuda/device_test/*.cpp)
  add_executable(device_test ${sources})
  target_include_directories(device_test PRIVATE ${PROJECT_SOURCE_DIR}/cuda/src ${PROJECT_BINARY_DIR}/cuda/generated)
  target_link_libraries(device_test PRIVATE sympow::cuda)
  if(SYMPOW_CUDA_RUNTIME)
    target_include_directories(device_test SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  else()
    target_link_libraries(device_test PRIVATE CUDA::cudart_static)
  endif()
  if(SYMPOW_CUDA_RUNTIME)  # gradients of all instantiations would take a quarter of an hour there
    add_test(NAME cuda.device_test COMMAND device_test refusals rows states streams)
    add_test(NAME cuda.device_test_of_steps COMMAND device_test decoding slots)
    add_test(NAME cuda.device_test_of_gradients COMMAND device_test gradients losses_of_states)
    foreach(part IN ITEMS steps gradients)
      set_tests_properties(cuda.device_test_of_${part} PROPERTIES LABELS cuda TIMEOUT 3000 COST 400)
    endforeach()
    add_test(NAME cuda.hopper COMMAND device_test --only "d 16, gates of 0, chunks, bf16" architectures rows_of_architectures)
    set_tests_properties(cuda.hopper PROPERTIES LABELS cuda TIMEOUT 600)
    add_test(NAME cuda.more_gradients CONFIGURATIONS Long COMMAND device_test more_gradients architectures rows_of_architectures)
    set_tests_properties(cuda.more_gradients PROPERTIES LABELS cuda TIMEOUT 3000)
    foreach(list IN ITEMS hopper hopper_128)
      add_test(NAME cuda.mutants_${list} CONFIGURATIONS Long COMMAND ${CMAKE_COMMAND} -D LIST=${list} -D "COMPILER=${CMAKE_CXX_COMPILER}"
        -D "KERNEL_COMPILER=${CMAKE_CUDA_COMPILER}" -D "GENERATED=${PROJECT_BINARY_DIR}/cuda/generated"
        -D "OBJECTS=$<TARGET_OBJECTS:device_test>;$<TARGET_FILE:sympow_cuda>;${SYMPOW_CUDA_RUNTIME}"
        -D "SCRATCH=${CMAKE_CURRENT_BINARY_DIR}/mutants/${list}" -P ${CMAKE_CURRENT_SOURCE_DIR}/cuda/mutants.cmake)
      set_tests_properties(cuda.mutants_${list} PROPERTIES LABELS "long;cuda" TIMEOUT 10800)
    endforeach()
  else()
    add_test(NAME cuda.device_test COMMAND device_test)
  endif()
  set_tests_properties(cuda.device_test PROPERTIES LABELS cuda TIMEOUT 3000 COST 400)
  cmake_path(GET CUDAToolkit_BIN_DIR PARENT_PATH cuda_root)
  add_test(NAME cuda.package COMMAND ${CMAKE_COMMAND} -D "BUILD=${PROJECT_BINARY_DIR}" -D "COMPILER=${CMAKE_CXX_COMPILER}"
    -D "GENERATOR=${CMAKE_GENERATOR}" -D "EIGEN=${Eigen3_DIR}" -D "CUDA=${cuda_root}"
    -D "SCRATCH=${CMAKE_CURRENT_BINARY_DIR}/cuda_package" -P ${CMAKE_CURRENT_SOURCE_DIR}/support/check_cuda_package.cmake)
  set_tests_properties(cuda.package PROPERTIES LABELS cuda)
  file(GLOB sources CONFIGURE_DEPENDS c/on_device/*.cpp)
  add_executable(c_on_device ${sources})
  target_include_directories(c_on_device PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_include_directories(c_on_device SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(c_on_device PRIVATE sympow_c_objects)
  if(NOT SYMPOW_CUDA_RUNTIME)
    target_link_libraries(c_on_device PRIVATE CUDA::cudart_static)
  endif()
  add_test(NAME cuda.c_on_device COMMAND c_on_device)
  set_tests_properties(cuda.c_on_device PROPERTIES LABELS cuda)
  if(Python3_FOUND)
    add_test(NAME cuda.python COMMAND ${python} -B ${CMAKE_CURRENT_SOURCE_DIR}/python/test_on_device.py)
    set_tests_properties(cuda.python PROPERTIES LABELS cuda SKIP_RETURN_CODE 77
      ENVIRONMENT "SYMPOW_C_LIBRARY=$<TARGET_FILE:sympow_c>;PYTHONPATH=${PROJECT_SOURCE_DIR}/python;$<IF:$<BOOL:${SYMPOW_CUDA_RUNTIME}>,SYMPOW_CUDA_ON_HOST=1,>")
    if(SYMPOW_CUDA_RUNTIME)  # on a GPU it is run by hand
      add_test(NAME cuda.check_gpu COMMAND ${PROJECT_SOURCE_DIR}/cuda/check_gpu.sh --small --prebuilt ${PROJECT_BINARY_DIR}
        --json ${CMAKE_CURRENT_BINARY_DIR}/check_gpu/report.json)
      set_tests_properties(cuda.check_gpu PROPERTIES LABELS cuda TIMEOUT 1800)
    endif()
  endif()
  add_dependencies(cuda_tests device_test c_on_device sympow_c sympow_cuda_bench)
endif()
