# The sources are the checkout around this port. In a registry vcpkg_from_github stands here.
cmake_path(SET SOURCE_PATH NORMALIZE "${CURRENT_PORT_DIR}/../..")

set(VCPKG_BUILD_TYPE release)  # headers only
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}" OPTIONS
  -DSYMPOW_BUILD_TESTS=OFF -DSYMPOW_BUILD_EXAMPLES=OFF -DSYMPOW_BUILD_BENCH=OFF -DSYMPOW_CUDA=OFF)
vcpkg_execute_build_process(COMMAND "${CMAKE_COMMAND}" --install . --component Unspecified
  WORKING_DIRECTORY "${CURRENT_BUILDTREES_DIR}/${TARGET_TRIPLET}-rel" LOGNAME "install-${TARGET_TRIPLET}-rel")
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/sympow)
vcpkg_fixup_pkgconfig()
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
file(INSTALL "${CURRENT_PORT_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
