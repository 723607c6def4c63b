# Functions that register a program or a script as a test. Every test has a timeout.
#
# Labels:  long    run only by `./check --long`
#          heavy   in builds with a sanitizer run only by `./check --long`; otherwise always run
#          noasan  not registered in builds with a sanitizer
#          notsan  not registered in builds with the thread sanitizer

set(TUTTI_TEST_TIMEOUT 120) # seconds, unless a test sets another

set(TUTTI_TEST_ENVIRONMENT
  "TUTTI_TEST_DATA=${PROJECT_SOURCE_DIR}/tests/data"
  # Without detect_stack_use_after_return: gcc 12's fake stack does not align vectors of 64 bytes.
  "ASAN_OPTIONS=strict_string_checks=1:allocator_may_return_null=1"
  "UBSAN_OPTIONS=print_stacktrace=1"
  "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1"
  # Tests run in parallel: waiting threads must not spin.
  "OMP_WAIT_POLICY=passive")

# Tests that take more than 30 seconds with a sanitizer, while shorter tests cover the same code. They get the label
# heavy in builds with a sanitizer.
set(TUTTI_HEAVY_TESTS
  cases_on_cpu_with_1   # cases_on_cpu_sampled has 8 of their 50 instances
  cases_on_cpu_with_2
  bench_on_hosts        # test_group_kinds has the collectives, in threads
  cli_bench             # test_training runs the same steps
  cli_train             # test_training, test_resume and test_ensemble have the trainings
  cli_tune              # test_study has the studies, test_stacked_members the trials
  cuda_convolutions     # kernels are not instrumented; cases_on_emulated_gpu covers the host code
  cuda_model_convolutions
  cuda_folds
  cuda_models
  cuda_whole_networks
  example_learn_text    # test_tasks has texts
  hung_gpu              # test_hung_gpu tests the same, in one process
  lost_gpu              # test_cuda_failures fails the same calls, in one process
  mismatches            # test_monitor has the messages of processes, in one
  train_on_ranks        # test_group_kinds has the collectives, in threads
  training_digests
  test_cpu_conv         # cases_on_cpu_sampled has smaller ones
  test_cpu_tiles
  test_cpu_fusion)      # cases_on_cpu_sampled covers smaller graphs

if(TUTTI_SANITIZE MATCHES thread)
  list(APPEND TUTTI_TEST_ENVIRONMENT "TUTTI_CASE_SECONDS=600") # timeout per case of tests/cli
endif()

# tutti_add_test(name COMMAND argument... [LABELS label...] [TIMEOUT seconds] [PROCESSORS count])
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
  # Sanitizers are slow, above all the thread sanitizer, whose builds use neither OpenMP nor oneDNN.
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
# Adds a test program that may use internal functions of the library and of the command line.
function(tutti_test name)
  cmake_parse_arguments(PARSE_ARGV 1 TEST "" "TIMEOUT" "SOURCES;LABELS")
  add_executable(${name} ${TEST_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE tutti_cli_internal tutti_internal PkgConfig::CMOCKA)
  tutti_add_test(${name} COMMAND ${name} LABELS ${TEST_LABELS} TIMEOUT ${TEST_TIMEOUT})
endfunction()
