package outage_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/test/weirtest"
	"github.com/weir-go/weir/outage"
)

// Each fallback has its own answers.
func TestFallbacks(t *testing.T) {
	const day = 24 * time.Hour
	policy := weir.Policy{Name: "t", Segments: []string{"a", "b"}, Rules: []weir.Rule{
		{Name: "wide", By: []string{"a"}, Algorithm: weirtest.Window(40, time.Hour)},
		{Name: "deep", Algorithm: weirtest.Window(80, day), Cost: 2},
	}}
	key := weir.KeyOf("x", "y")
	each := make([]weir.Result, 2)
	for _, tt := range []struct {
		name    string
		outage  outage.Options
		request weir.Request
		want    weir.Result
		each    [2]weir.Result
	}{
		{"closed", outage.Options{}, weir.Request{Key: key, Cost: 3},
			weir.Result{Rule: "wide", Limit: 40, Window: time.Hour, RetryAfter: time.Second, Delay: weir.Never},
			[2]weir.Result{
				{Rule: "wide", Limit: 40, Window: time.Hour, RetryAfter: time.Second, Delay: weir.Never},
				{Rule: "deep", Limit: 80, Window: day, RetryAfter: time.Second, Delay: weir.Never},
			}},
		{"closed, too much", outage.Options{}, weir.Request{Key: key, Cost: 41},
			weir.Result{Rule: "wide", Limit: 40, Window: time.Hour, RetryAfter: weir.Never, Delay: weir.Never},
			[2]weir.Result{
				{Rule: "wide", Limit: 40, Window: time.Hour, RetryAfter: weir.Never, Delay: weir.Never},
				{Rule: "deep", Limit: 80, Window: day, RetryAfter: time.Second, Delay: weir.Never},
			}},
		{"open", outage.Options{Fallback: outage.Open}, weir.Request{Key: key, Cost: 3},
			weir.Result{Allowed: true, Granted: 3, Rule: "wide", Limit: 40, Window: time.Hour},
			[2]weir.Result{
				{Allowed: true, Granted: 3, Rule: "wide", Limit: 40, Window: time.Hour},
				{Allowed: true, Granted: 2, Rule: "deep", Limit: 80, Window: day},
			}},
		{"open, peek", outage.Options{Fallback: outage.Open}, weir.Request{Key: key, Op: weir.Peek},
			weir.Result{Allowed: true, Rule: "wide", Limit: 40, Window: time.Hour},
			[2]weir.Result{
				{Allowed: true, Rule: "wide", Limit: 40, Window: time.Hour},
				{Allowed: true, Rule: "deep", Limit: 80, Window: day},
			}},
		{"open, up to more than the limit", outage.Options{Fallback: outage.Open}, weir.Request{Key: key, Op: weir.TakeUpTo, Cost: 100},
			weir.Result{Allowed: true, Granted: 40, Rule: "wide", Limit: 40, Window: time.Hour},
			[2]weir.Result{
				{Allowed: true, Granted: 40, Rule: "wide", Limit: 40, Window: time.Hour},
				{Allowed: true, Granted: 2, Rule: "deep", Limit: 80, Window: day},
			}},
		{"open, too much", outage.Options{Fallback: outage.Open}, weir.Request{Key: key, Cost: 41},
			weir.Result{Rule: "wide", Limit: 40, Window: time.Hour, RetryAfter: weir.Never, Delay: weir.Never},
			[2]weir.Result{
				{Rule: "wide", Limit: 40, Window: time.Hour, RetryAfter: weir.Never, Delay: weir.Never},
				{Allowed: true, Rule: "deep", Limit: 80, Window: day},
			}},
		{"local", outage.Options{Fallback: outage.Local, Processes: 4}, weir.Request{Key: key, Cost: 3},
			weir.Result{Allowed: true, Granted: 3, Rule: "wide", Limit: 10, Window: time.Hour, Remaining: 7, ResetAfter: time.Hour},
			[2]weir.Result{
				{Allowed: true, Granted: 3, Rule: "wide", Limit: 10, Window: time.Hour, Remaining: 7, ResetAfter: time.Hour},
				{Allowed: true, Granted: 2, Rule: "deep", Limit: 20, Window: day, Remaining: 18, ResetAfter: day},
			}},
		{"local, above the share", outage.Options{Fallback: outage.Local, Processes: 4}, weir.Request{Key: key, Cost: 11},
			weir.Result{Rule: "wide", Limit: 10, Window: time.Hour, Remaining: 10, RetryAfter: time.Second, Delay: weir.Never},
			[2]weir.Result{
				{Rule: "wide", Limit: 10, Window: time.Hour, Remaining: 10, RetryAfter: time.Second, Delay: weir.Never},
				{Allowed: true, Rule: "deep", Limit: 20, Window: day, Remaining: 20},
			}},
		{"local, too much", outage.Options{Fallback: outage.Local, Processes: 4}, weir.Request{Key: key, Cost: 41},
			weir.Result{Rule: "wide", Limit: 40, Window: time.Hour, RetryAfter: weir.Never, Delay: weir.Never},
			[2]weir.Result{
				{Rule: "wide", Limit: 40, Window: time.Hour, RetryAfter: weir.Never, Delay: weir.Never},
				{Rule: "deep", Limit: 80, Window: day, RetryAfter: time.Second, Delay: weir.Never},
			}},
		{"local, up to more than the share", outage.Options{Fallback: outage.Local, Processes: 3}, weir.Request{Key: key, Op: weir.TakeUpTo, Cost: 100},
			weir.Result{Allowed: true, Granted: 13, Rule: "wide", Limit: 13, Window: time.Hour, ResetAfter: time.Hour},
			[2]weir.Result{
				{Allowed: true, Granted: 13, Rule: "wide", Limit: 13, Window: time.Hour, ResetAfter: time.Hour},
				{Allowed: true, Granted: 2, Rule: "deep", Limit: 26, Window: day, Remaining: 24, ResetAfter: day},
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := weirtest.NewFaulty()
				st.Set(weirtest.Down)
				l := onOutage(t, weirtest.NewPolicy(t, st, policy), tt.outage)
				res, err := l.Decide(t.Context(), tt.request, each)
				res = weirtest.Degraded(t, res, err)
				for i := range each {
					weirtest.Degraded(t, each[i], nil)
					over := tt.outage.Fallback == outage.Local && !each[i].Allowed && tt.request.Cost <= 40
					if got := errors.Is(each[i].Degraded, weir.ErrDenied); got != over {
						t.Errorf("rule %d: %+v is an ErrDenied: %v, want %v", i, each[i], got, over)
					}
					if each[i].Degraded = nil; each[i] != tt.each[i] {
						t.Errorf("rule %d:\ngot  %+v\nwant %+v", i, each[i], tt.each[i])
					}
				}
				if res.Degraded = nil; res != tt.want {
					t.Errorf("got  %+v\nwant %+v", res, tt.want)
				}
			})
		})
	}
}

// Open grants what the limiter would grant if rules have a Cost.
func TestOpenOwnCosts(t *testing.T) {
	t.Parallel()
	type costs [2]struct{ limit, cost int64 }
	for _, tt := range []struct {
		costs   costs
		r       weir.Request
		rule    string
		granted int64
	}{
		{costs{{9, 3}, {9, 5}}, weir.Request{}, "0", 3},
		{costs{{9, 3}, {9, 0}}, weir.Request{Cost: 7}, "0", 7},
		{costs{{9, 0}, {5, 1}}, weir.Request{Cost: 7}, "0", 7},
		{costs{{40, 0}, {30, 2}}, weir.Request{Op: weir.TakeUpTo, Cost: 35}, "0", 35},
		{costs{{40, 0}, {30, 0}}, weir.Request{Op: weir.TakeUpTo, Cost: 35}, "0", 30},
		{costs{{40, 0}, {30, 0}}, weir.Request{Cost: 35}, "1", 0},
	} {
		st := weirtest.NewFaulty()
		st.Set(weirtest.Down)
		p := weirtest.Rules()
		for i, c := range tt.costs {
			p.Rules = append(p.Rules, weir.Rule{Name: fmt.Sprint(i), Algorithm: weirtest.Window(c.limit, time.Hour), Cost: c.cost})
		}
		l := onOutage(t, weirtest.NewPolicy(t, st, p), outage.Options{Fallback: outage.Open})
		tt.r.Key = weir.KeyOf("ann")
		res, err := l.Decide(t.Context(), tt.r, nil)
		if res = weirtest.Degraded(t, res, err); res.Rule != tt.rule || res.Granted != tt.granted || res.Allowed != (tt.granted > 0) {
			t.Errorf("%+v: got %+v, want %d granted, rule %s", tt, res, tt.granted, tt.rule)
		}
	}
}

// A denied answer of Closed can be retried when the next probe is due.
func TestClosedRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := weirtest.NewFaulty()
		st.Set(weirtest.Down)
		l := onOutage(t, weirtest.New(t, st, weirtest.PerSecond), outage.Options{Probe: 3 * time.Second})
		fail(t, l)
		time.Sleep(time.Second + time.Nanosecond)
		res, err := l.Allow(t.Context(), "ann")
		if res = weirtest.Degraded(t, res, err); res.Allowed || res.RetryAfter != 2*time.Second {
			t.Errorf("got %+v, want it denied for 2 s", res)
		}
		st.Set(weirtest.Up)
		time.Sleep(res.RetryAfter - time.Microsecond)
		res, err = l.Allow(t.Context(), "ann")
		weirtest.Degraded(t, res, err)
		time.Sleep(time.Microsecond)
		res, err = l.Allow(t.Context(), "ann")
		if res = weirtest.Healthy(t, res, err); !res.Allowed {
			t.Errorf("got %+v", res)
		}
	})
}
