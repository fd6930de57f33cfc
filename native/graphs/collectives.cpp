#include "../tape/collectives.cpp"
