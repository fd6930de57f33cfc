#include "tape/ops.cpp"
