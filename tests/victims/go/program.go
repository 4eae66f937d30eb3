// What Go needs SIGURG for: with one processor a goroutine that never calls anything is
// interrupted, so that others run and memory is collected. Computed without calls by several at
// once; the sums are what they are, and so are the signals that the program asked for.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

//go:noinline
func spin(stop *int32) (turns uint64) {
	for atomic.LoadInt32(stop) == 0 {
		turns++
	}
	return turns
}

func deep(n int) int {
	var room [256]byte
	room[n%256] = 1
	if n == 0 {
		return int(room[0])
	}
	return deep(n-1) + int(room[n%256])
}

type tree struct{ left, right *tree }

func grow(depth int) *tree {
	if depth == 0 {
		return &tree{}
	}
	return &tree{grow(depth - 1), grow(depth - 1)}
}

func (t *tree) count() int {
	if t.left == nil {
		return 1
	}
	return 1 + t.left.count() + t.right.count()
}

func main() {
	runtime.GOMAXPROCS(1)
	var stop int32
	var done sync.WaitGroup
	for i := 0; i < 3; i++ {
		done.Add(1)
		go func() { defer done.Done(); fmt.Fprintln(os.Stderr, "spun", spin(&stop) > 0) }()
	}
	// They have the only processor: this comes back only because they are interrupted.
	time.Sleep(time.Millisecond)
	runtime.GC()
	fmt.Println("preempted")
	atomic.StoreInt32(&stop, 1)
	done.Wait()

	runtime.GOMAXPROCS(4)
	sums := make([]int, 8)
	for i := range sums {
		done.Add(1)
		go func(i int) {
			defer done.Done()
			for k := 0; k < 5; k++ {
				sums[i] += deep(2000+100*i) + grow(12).count() + inC(100000*i)
			}
			if i%2 == 0 {
				runtime.LockOSThread() // and the thread ends with it
			}
		}(i)
	}
	done.Wait()
	fmt.Println(sums)

	caught := make(chan os.Signal, 100)
	signal.Notify(caught, syscall.SIGUSR1, syscall.SIGURG, syscall.SIGWINCH)
	for _, one := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGWINCH} {
		syscall.Kill(os.Getpid(), one)
		for got := range caught {
			if got == one {
				fmt.Println("caught", got)
				break
			}
		}
	}
	signal.Stop(caught)
	// A fault becomes a panic.
	func() {
		defer func() { fmt.Println("recovered:", recover()) }()
		debug.SetPanicOnFault(true)
		var nowhere *tree
		fmt.Println(nowhere.left)
	}()
	output, err := exec.Command("sh", "-c", "echo from a child").CombinedOutput()
	fmt.Printf("%s%v\n", output, err)
}
