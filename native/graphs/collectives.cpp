#include "tape/collectives.cpp"
