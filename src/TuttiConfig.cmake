# Read by find_package(Tutti):
#
#   find_package(Tutti REQUIRED)
#   target_link_libraries(program PRIVATE Tutti::train)   # data sets, training, evaluation, and all of Tutti::tutti
#   target_link_libraries(program PRIVATE Tutti::tutti)   # only graphs, devices, optimizers
#   target_link_libraries(plugin PRIVATE Tutti::kit)      # device plug-ins that fuse operations: device/kit/kit.h
#
# COMPONENTS may name tutti, train and kit; all are always installed.
include(${CMAKE_CURRENT_LIST_DIR}/TuttiTargets.cmake)
foreach(component IN LISTS Tutti_FIND_COMPONENTS)
  if(TARGET Tutti::${component})
    set(Tutti_${component}_FOUND TRUE)
  elseif(Tutti_FIND_REQUIRED_${component})
    set(Tutti_FOUND FALSE)
    set(Tutti_NOT_FOUND_MESSAGE "Tutti has no component '${component}': expected tutti, train or kit")
  endif()
endforeach()
