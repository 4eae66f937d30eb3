package main

/*
#include <stdint.h>
static uint64_t in_c(uint64_t turns) {
	volatile uint64_t sum = 0;
	for (uint64_t i = 0; i < turns; i++) sum += i;
	return sum;
}
*/
import "C"

func inC(turns int) int { return int(C.in_c(C.uint64_t(turns))) }
