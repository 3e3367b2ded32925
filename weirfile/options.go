package weirfile

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
)

// Options are the optional settings of a [File] and its [Limits]. The zero value is the
// default.
type Options struct {
	// Limiter are the options of every limiter.
	Limiter *weir.Options

	// Wrap returns the wrappers of the limiters of a policy, from the outermost to the
	// innermost, as weir.Limiter.Wrap takes them. nil means no wrappers. It is called
	// once for each policy, and its wrappers also stand around the limiters of plans and
	// overrides, and of files that are loaded later.
	Wrap func(policy string) []weir.Wrapper

	// Algorithms are algorithms of your own, by the name that files use for them. A value
	// is a struct or a pointer to one. A file can set its exported fields that are
	// integers, texts, booleans, durations, rates, lists of structs of them, or that
	// implement encoding.TextMarshaler and encoding.TextUnmarshaler. A field MaxUsers has
	// the name "max users" in a file. Fields that a file does not set keep their value.
	// With the tag `weirfile:"clock"`, a time.Duration is a time of day: "06:00".
	Algorithms map[string]algorithm.Algorithm

	// Override returns the override of a key, for example from a database. found is false
	// if the key has none. What overrides of the file set wins, but a caller whom Override
	// blocks stays blocked. For keeps the result for OverrideAge. Several goroutines can
	// call it at once, but not for a key whose result is kept. Other requests use its last
	// result, or wait for the first until their contexts end.
	//
	// After an error, or an override that is not valid, the last result stays in use, or
	// the limits of the plan or the policy if there is none. OnError and Status report
	// the error, and the function is called again after a second. A panic is
	// counted as an error, and propagates.
	Override func(ctx context.Context, policy string, key weir.Key) (o Override, found bool, err error)

	// OverrideAge is how long a result of Override is used. 0 means one minute.
	OverrideAge time.Duration

	// MaxOverrides is the largest number of results of Override that are kept. 0 means
	// 10,000.
	MaxOverrides int

	// Interval is the time between two checks of the file by Watch. 0 means 5 seconds.
	Interval time.Duration

	// OnLoad is called after Watch or Reload has put a changed file into use.
	OnLoad func(f *File)

	// OnError is called after each check of the file that failed, even if the previous
	// one failed for the same reason, and after each error of Override. The limits in use
	// have not changed.
	OnError func(err error)
}

func (o *Options) orDefault() *Options {
	if o == nil {
		return &Options{}
	}
	return o
}

// check returns an error if a field is out of range.
func (o *Options) check() error {
	switch {
	case o.Interval < 0:
		return fmt.Errorf("weirfile: Options.Interval is %v: it must be 0, which means 5s, or more", o.Interval)
	case o.OverrideAge < 0:
		return fmt.Errorf("weirfile: Options.OverrideAge is %v: it must be 0, which means 1m, or more", o.OverrideAge)
	case o.MaxOverrides < 0:
		return fmt.Errorf("weirfile: Options.MaxOverrides is %d: it must be 0, which means 10,000, or more", o.MaxOverrides)
	}
	return nil
}
