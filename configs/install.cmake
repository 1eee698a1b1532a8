# cmake --install: the program, its pages, recipes and the bundled model, below one prefix; included by CMakeLists.txt.
#
#     bin/shardrun                  share/man/man1/shardrun.1        share/doc/shardrun/
#     share/shardrun/recipes, clusters, models, reference.yaml       share/modulefiles/shardrun/VERSION
#
# Recipes name the bundled model as ../models/jargon-moe: the folders keep their places to each other.
include(GNUInstallDirs)
install(TARGETS shardrun RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
configure_file(docs/shardrun.1.in shardrun.1 @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/shardrun.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
foreach(part recipes clusters models)
	if(EXISTS ${PROJECT_SOURCE_DIR}/configs/${part})
		install(DIRECTORY configs/${part} DESTINATION ${CMAKE_INSTALL_DATADIR}/shardrun)
	endif()
endforeach()
install(FILES configs/reference.yaml DESTINATION ${CMAKE_INSTALL_DATADIR}/shardrun OPTIONAL)
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs FILES_MATCHING PATTERN "*.md")
# When it is installed, so that --prefix counts.
install(CODE "
	set(PROJECT_VERSION ${PROJECT_VERSION})
	set(to \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/modulefiles/shardrun/${PROJECT_VERSION}\")
	configure_file(\"${PROJECT_SOURCE_DIR}/configs/modulefile.in\" \"\${to}\" @ONLY)
	message(STATUS \"Installing: \${to}\")")
