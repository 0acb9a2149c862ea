# Part of `cmake --install`: makes shell completion, the manual page and the changelog, and installs them.
# Needs `numoe` (the program), `made` (a folder to write to) and `source` (this folder).

# run(OUTPUT COMMAND…)
function(run output)
  execute_process(COMMAND ${ARGN} OUTPUT_FILE ${output} RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "${ARGN} failed: ${failed}; build the target numoe first")
  endif()
endfunction()

file(MAKE_DIRECTORY ${made}/completion)
foreach(pair bash:bash-completion/completions/numoe zsh:zsh/site-functions/_numoe
    fish:fish/vendor_completions.d/numoe.fish)
  string(REGEX MATCH "^[a-z]+" shell ${pair})
  string(REGEX REPLACE "^[a-z]+:" "" place ${pair})
  get_filename_component(folder ${place} DIRECTORY)
  get_filename_component(name ${place} NAME)
  run(${made}/completion/${name} ${numoe} completion ${shell})
  file(INSTALL ${made}/completion/${name} DESTINATION ${CMAKE_INSTALL_PREFIX}/share/${folder})
endforeach()

run(${made}/numoe.1 ${source}/man_page.py ${numoe})
run(${made}/numoe.1.gz gzip -9nc ${made}/numoe.1)
file(INSTALL ${made}/numoe.1.gz DESTINATION ${CMAKE_INSTALL_PREFIX}/share/man/man1)
run(${made}/changelog.gz gzip -9nc ${made}/changelog)
file(INSTALL ${made}/changelog.gz DESTINATION ${CMAKE_INSTALL_PREFIX}/share/doc/numoe)
