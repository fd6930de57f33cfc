#include "tape/steps.cpp"
