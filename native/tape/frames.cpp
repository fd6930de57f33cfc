// The walk of Python frames, compiled for this extension as well.
#include "cpython/frames.cpp"
