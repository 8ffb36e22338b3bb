#include <sympow/sympow.hpp>

int main() { return 0; }
