# How a test is registered: a program or a script, always under a time limit, so that nothing ever hangs.
#
# Labels:  long    run by `./check --long` alone
#          heavy   in builds with a sanitizer likewise; elsewhere always run
#          noasan  not registered in builds with a sanitizer
#          notsan  not registered in builds with the thread sanitizer

set(TUTTI_TEST_TIMEOUT 120) # seconds, where a test does not name its own

set(TUTTI_TEST_ENVIRONMENT
  # Not detect_stack_use_after_return: gcc 12's stand-in stack does not keep vectors of 64 bytes aligned.
  "ASAN_OPTIONS=strict_string_checks=1:allocator_may_return_null=1"
  "UBSAN_OPTIONS=print_stacktrace=1"
  "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1"
  # Tests share the processors: a thread that waits leaves its own to another test instead of spinning there.
  "OMP_WAIT_POLICY=passive")

# What takes half a minute and more when every access is checked, while shorter tests reach the same code: these get the
# label heavy there.
set(TUTTI_HEAVY_TESTS
  cases_on_cpu_with_2   # with_1 has the same shapes
  cli_bench             # measures steps that cli_train runs too
  cuda_convolutions     # of the card's kernels only what surrounds them is instrumented: cases_on_emulated_gpu
  cuda_folds
  cuda_whole_networks
  hung_gpu              # test_hung_gpu tests the same, in one process
  lost_gpu              # test_cuda_failures fails the same calls, in one process
  test_cpu_conv         # cases_on_cpu_with_1 has smaller ones
  test_cpu_fusion)      # likewise

if(TUTTI_SANITIZE MATCHES thread)
  list(APPEND TUTTI_TEST_ENVIRONMENT "TUTTI_CASE_SECONDS=600") # of a case of tests/cli
endif()

# tutti_add_test(name COMMAND word... [LABELS label...] [TIMEOUT seconds] [PROCESSORS count])
function(tutti_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 TEST "" "TIMEOUT;PROCESSORS" "COMMAND;LABELS")
  if(TUTTI_SANITIZE AND "noasan" IN_LIST TEST_LABELS)
    return()
  endif()
  if(TUTTI_SANITIZE MATCHES thread AND "notsan" IN_LIST TEST_LABELS)
    return()
  endif()
  if(TUTTI_SANITIZE AND name IN_LIST TUTTI_HEAVY_TESTS)
    list(APPEND TEST_LABELS heavy)
  endif()
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT ${TUTTI_TEST_TIMEOUT})
  endif()
  # Sanitizers cost time; the thread sanitizer, which has plain threads and no oneDNN beside it, most.
  if(TUTTI_SANITIZE MATCHES thread)
    math(EXPR TEST_TIMEOUT "${TEST_TIMEOUT} * 10")
  elseif(TUTTI_SANITIZE)
    math(EXPR TEST_TIMEOUT "${TEST_TIMEOUT} * 4")
  endif()
  add_test(NAME ${name} COMMAND ${TEST_COMMAND})
  set_tests_properties(${name} PROPERTIES
    TIMEOUT ${TEST_TIMEOUT} LABELS "${TEST_LABELS}" ENVIRONMENT "${TUTTI_TEST_ENVIRONMENT}")
  if(TEST_PROCESSORS)
    set_tests_properties(${name} PROPERTIES PROCESSORS ${TEST_PROCESSORS})
  endif()
endfunction()

# tutti_test(name SOURCES file... [LABELS label...] [TIMEOUT seconds])
# A program that may use the library's and the command's internal functions, run as a test.
function(tutti_test name)
  cmake_parse_arguments(PARSE_ARGV 1 TEST "" "TIMEOUT" "SOURCES;LABELS")
  add_executable(${name} ${TEST_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE tutti_cli_internal tutti_internal PkgConfig::CMOCKA)
  tutti_add_test(${name} COMMAND ${name} LABELS ${TEST_LABELS} TIMEOUT ${TEST_TIMEOUT})
endfunction()
