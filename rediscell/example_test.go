package rediscell_test

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/rediscell"
	"github.com/weir-go/weir/store/memory"
)

// noon is a clock that always shows the same time, so that the output of the example does
// not change. A program does not need it.
func noon() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

func ExampleThrottler_Throttle() {
	th, err := rediscell.New("api", memory.New(nil), &weir.Options{Clock: noon})
	if err != nil {
		panic(err)
	}
	answer, err := th.Throttle(context.Background(), "user123", 15, 30, time.Minute, 1) // CL.THROTTLE user123 15 30 60 1
	fmt.Println(answer.Numbers(), err)
	// Output: [0 16 15 -1 2] <nil>
}
