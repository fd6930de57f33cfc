// What each sanitizer is there to find, made on purpose.
#include <cstring>
#include <thread>

int main(int, char** arguments) {
  volatile int* shared = new int(1);
  if (strcmp(arguments[1], "thread") == 0) {
    std::thread other([&] { *shared = 2; });
    *shared = 3;
    other.join();
    return 0;
  }
  delete shared;
  return *shared;
}
