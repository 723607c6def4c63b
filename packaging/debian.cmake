# Debian packages, built by `cmake --workflow --preset package` (or cpack -G DEB in its build folder):
#
#   tutti          the command, libtutti, libtutti_train, the CUDA plug-in if it was built, the manual
#   tutti-mpi      the plug-in with which tutti trains on several processes, if Open MPI was found
#   libtutti-dev   headers, the kit for device plug-ins, and the files for the linker, pkg-config and CMake's find_package
#
# The preset sets CMAKE_SKIP_RPATH, because Debian's policy forbids a RUNPATH to system folders. dpkg-shlibdeps finds
# the packages that the libraries depend on.
set(TUTTI_MAINTAINER "Tutti maintainers <maintainers@tutti.invalid>" CACHE STRING
  "The Maintainer field of Debian packages: Name <address>")
find_program(TUTTI_GZIP gzip REQUIRED)

# tutti_install_compressed(file name folder component): installs FILE as FOLDER/NAME.gz, without time stamps.
function(tutti_install_compressed file name folder component)
  set(compressed ${PROJECT_BINARY_DIR}/packaging/${name}.gz)
  execute_process(COMMAND ${TUTTI_GZIP} -9nc ${file} OUTPUT_FILE ${compressed} COMMAND_ERROR_IS_FATAL ANY)
  install(FILES ${compressed} DESTINATION ${folder} COMPONENT ${component})
endfunction()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VENDOR Tutti)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_COMPONENTS_ALL runtime development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER ${TUTTI_MAINTAINER})
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME tutti)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION science)
set(CPACK_DEBIAN_RUNTIME_DESCRIPTION
"Trains and runs neural networks on CPUs and GPUs, without Python: the
command tutti and the shared libraries libtutti and libtutti_train.

Your own networks in C files, and programs that use the libraries, need
libtutti-dev and a C compiler.")
# SQLite and PostgreSQL's library (below) are opened at run time, by studies of `tutti tune`.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS libsqlite3-0)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS "libtutti-dev, gcc, tutti-mpi, libpq5")
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY "=") # before 1.0 any version may change the interface

if(TARGET tutti_mpi)
  list(APPEND CPACK_COMPONENTS_ALL mpi)
  set(CPACK_DEBIAN_MPI_PACKAGE_NAME tutti-mpi)
  set(CPACK_DEBIAN_MPI_PACKAGE_SECTION science)
  set(CPACK_DEBIAN_MPI_DESCRIPTION
"Trains neural networks on several processes and hosts: a plug-in of
tutti that connects the processes through Open MPI. They are started by
mpirun, by srun of Slurm, or by the command tutti launch.")
  set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "tutti (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
  set(CPACK_DEBIAN_MPI_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_MPI_PACKAGE_RECOMMENDS openmpi-bin)
  set(CPACK_DEBIAN_MPI_PACKAGE_GENERATE_SHLIBS OFF) # nothing links a plug-in
endif()

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libtutti-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION
"Development files: headers of libtutti and libtutti_train, the kit for
device plug-ins, and files for the linker, pkg-config and CMake's
find_package(Tutti).")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "tutti (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}), libc6-dev")

file(WRITE ${PROJECT_BINARY_DIR}/packaging/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/packaging/triggers)

# Files that Debian's policy requires in /usr/share/doc/PACKAGE: the licence and both changelogs.
string(TIMESTAMP day "%a, %d %b %Y" UTC) # of SOURCE_DATE_EPOCH if it is set
file(WRITE ${PROJECT_BINARY_DIR}/packaging/debian-changelog
  "tutti (${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium\n\n"
  "  * Version ${PROJECT_VERSION}; changelog.gz lists the changes.\n\n -- ${TUTTI_MAINTAINER}  ${day} 00:00:00 +0000\n")
foreach(component RUNTIME MPI DEVELOPMENT)
  if(NOT DEFINED CPACK_DEBIAN_${component}_PACKAGE_NAME)
    continue()
  endif()
  set(folder ${CMAKE_INSTALL_DATADIR}/doc/${CPACK_DEBIAN_${component}_PACKAGE_NAME})
  string(TOLOWER ${component} component)
  install(FILES packaging/copyright DESTINATION ${folder} COMPONENT ${component})
  tutti_install_compressed(${PROJECT_SOURCE_DIR}/CHANGELOG.md changelog ${folder} ${component})
  tutti_install_compressed(${PROJECT_BINARY_DIR}/packaging/debian-changelog changelog.Debian ${folder} ${component})
endforeach()
foreach(page IN LISTS man_pages)
  get_filename_component(name ${page} NAME)
  tutti_install_compressed(${page} ${name} ${CMAKE_INSTALL_MANDIR}/man1 runtime)
endforeach()

include(CPack)
