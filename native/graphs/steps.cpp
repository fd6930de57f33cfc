#include "../tape/steps.cpp"
