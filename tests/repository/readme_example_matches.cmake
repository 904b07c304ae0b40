# Fails unless README.md's C++ block is examples/quickstart.cpp, which is compiled and run.
file(READ ${ROOT}/README.md readme)
file(READ ${ROOT}/examples/quickstart.cpp example)
string(FIND "${readme}" "```cpp\n${example}```\n" position)
if(position EQUAL -1)
  message(FATAL_ERROR "The ```cpp block of README.md differs from examples/quickstart.cpp")
endif()
