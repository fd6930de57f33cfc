#include "../tape/ops.cpp"
