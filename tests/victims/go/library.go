// Go in a C program (-buildmode=c-shared): its runtime starts when it is loaded, and takes signals
// then.
package main

import "C"

import (
	"runtime"
	"sync/atomic"
	"time"
)

var stop int32

//go:noinline
func spin() (turns uint64) {
	for atomic.LoadInt32(&stop) == 0 {
		turns++
	}
	return turns
}

// Preempted gives 1 when goroutines that never call anything have been interrupted often enough for
// others to run.
//
//export Preempted
func Preempted() C.int {
	runtime.GOMAXPROCS(1)
	atomic.StoreInt32(&stop, 0)
	ended := make(chan uint64)
	for i := 0; i < 3; i++ {
		go func() { ended <- spin() }()
	}
	time.Sleep(time.Millisecond)
	runtime.GC()
	atomic.StoreInt32(&stop, 1)
	result := C.int(1)
	for i := 0; i < 3; i++ {
		if <-ended == 0 {
			result = 0
		}
	}
	runtime.GOMAXPROCS(4)
	return result
}

func deep(n int) int {
	var room [256]byte
	room[n%256] = 1
	if n == 0 {
		return int(room[0])
	}
	return deep(n-1) + int(room[n%256])
}

// Deep gives the depth of a recursion, for which the goroutine's stack is made larger a few times.
//
//export Deep
func Deep(depth C.int) C.int { return C.int(deep(int(depth))) }

// Recovered gives 1 when a fault has become a panic, and that was recovered.
//
//export Recovered
func Recovered() (result C.int) {
	defer func() {
		if recover() != nil {
			result = 1
		}
	}()
	var nowhere *int
	*nowhere = 1
	return 0
}

func main() {}
