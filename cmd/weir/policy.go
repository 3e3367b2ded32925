package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/storekey"
	"github.com/weir-go/weir/weirfile"
	"github.com/weir-go/weir/weirhttp"
)

// policyFlags are the flags of commands about the limits of a policy.
type policyFlags struct {
	*tool
	url          *string
	output       *format
	prefix, plan string
	address      string
}

func (t *tool) policyFlags(set *flag.FlagSet) *policyFlags {
	f := &policyFlags{tool: t, url: storeFlag(set), output: formatFlag(set)}
	set.StringVar(&f.prefix, "prefix", "", "the `prefix` of keys, if the program sets weir.Options.Prefix")
	set.StringVar(&f.plan, "plan", "", "the name of the caller's `plan`; an override of the key wins over it")
	set.StringVar(&f.address, "addr", "", "the name of the `segment` that is an IP address: an IPv6 address then stands for its /64 network, as in weirhttp")
	return f
}

// A subject is the limits of a policy over the store, and the arguments that follow its
// name.
type subject struct {
	file   *weirfile.File
	limits *weirfile.Limits
	policy weirfile.Policy
	base   *weir.Limiter // with the limits of the flag -plan
	key    []string
	known  map[hashedSegment]string // those of overrides, in clear: see inClear

	// Of a whole key:
	caller weir.Key
	lim    *weir.Limiter
	source weirfile.Source

	close func()
}

// load reads a file of policies.
func (f *policyFlags) load(path string) (*weirfile.File, error) {
	file, err := weirfile.Load(path, &weirfile.Options{Limiter: &weir.Options{Prefix: f.prefix}})
	if err != nil {
		return nil, usageError{err}
	}
	return file, nil
}

// open opens the policy that args name: FILE POLICY KEY…. Unless whole is true, the key
// can be its first segments.
func (f *policyFlags) open(ctx context.Context, args []string, whole bool) (*subject, error) {
	if len(args) < 2 {
		return nil, usagef("there are %d arguments: give a file, a policy, and a key", len(args))
	}
	file, err := f.load(args[0])
	if err != nil {
		return nil, err
	}
	s := &subject{file: file, key: slices.Clone(args[2:])}
	var names []string
	for _, p := range file.Policies() {
		if p.Name == args[1] {
			s.policy = p
		}
		names = append(names, quoted(p.Name))
	}
	if s.policy.Name == "" {
		return nil, usagef("%s has no policy %q: it has %s", args[0], args[1], strings.Join(names, ", "))
	}
	if s.policy.Segments == nil {
		s.policy.Segments = []string{"key"}
	}
	if err := f.complete(s, whole); err != nil {
		return nil, err
	}
	at, err := f.target(*f.url, "")
	if err != nil {
		return nil, err
	}
	server, err := f.dial(ctx, at)
	if err != nil {
		return nil, err
	}
	s.close = server.close
	if err := s.find(ctx, f, server, whole); err != nil {
		server.close()
		if !unavailable(err) {
			err = usageError{err}
		}
		return nil, err
	}
	return s, nil
}

// complete checks the key of s, reads the segments that are "-", and replaces an address.
func (f *policyFlags) complete(s *subject, whole bool) error {
	names := s.policy.Segments
	if n := len(s.key); whole && n != len(names) || n > len(names) {
		return usagef("the key has %d segments: it must have %d: %s", n, len(names), quotedAll(names))
	}
	for i := range s.key {
		if s.key[i] == "-" {
			if f.ask {
				f.print(f.err, names[i]+": ")
			}
			var ok bool
			if s.key[i], ok = f.line(); !ok {
				return usagef("standard input has no line for the segment %q", names[i])
			}
		}
	}
	switch {
	case slices.Contains(s.key, ""):
		return usagef("the key's segment %q is empty: it must have at least 1 byte", names[slices.Index(s.key, "")])
	case f.address == "":
		return nil
	}
	i := slices.Index(names, f.address)
	switch {
	case i < 0:
		return usagef("-addr is %q: it must be a segment of the policy: %s", f.address, quotedAll(names))
	case i >= len(s.key) || weir.HashedKeyOf(s.key...).Hashed(i):
		return nil
	}
	segment, err := weirhttp.IPSegment(s.key[i], 0)
	if err != nil {
		return usagef("the key's segment %q is not an IP address: it must be one, because -addr names it", f.address) // it can be secret
	}
	s.key[i] = segment
	return nil
}

// find sets the limiters of s.
func (s *subject) find(ctx context.Context, f *policyFlags, server *server, whole bool) (err error) {
	if s.limits, err = s.file.Limits(server.store); err != nil {
		return err
	}
	// A key that cannot be one: it has no override.
	if s.base, err = s.limits.For(ctx, s.policy.Name, f.plan, weir.Key{}); errors.Is(err, weirfile.ErrUnknown) {
		return fmt.Errorf("-plan: %w", err)
	} else if err != nil || !whole {
		return err
	}
	s.caller = s.inClear(weir.HashedKeyOf(s.key...))
	if s.lim, err = s.limits.For(ctx, s.policy.Name, f.plan, s.caller); err != nil {
		return err
	}
	s.source, err = s.limits.Source(ctx, s.policy.Name, f.plan, s.caller)
	return err
}

// A hashedSegment is a segment of the policy, and its hash.
type hashedSegment struct {
	index int
	hash  string
}

// inClear returns k with the segments in clear that overrides match. A file has them in clear, and
// the store only the hash of a secret or long one. k can have empty segments.
func (s *subject) inClear(k weir.Key) weir.Key {
	if s.known == nil {
		s.known = map[hashedSegment]string{}
		for _, o := range s.policy.Overrides {
			for i, own := range o.Key.Segments() {
				if own != "" && (len(own) > weir.MaxSegment || slices.Contains(s.policy.Secret, s.policy.Segments[i])) {
					s.known[hashedSegment{i, string(storekey.AppendHash(nil, own))}] = own
				}
			}
		}
	}
	list := k.Segments()
	for i, given := range list {
		list[i] = storekey.Typed(given, k.Hashed(i))
		if own, ok := s.known[hashedSegment{i, given}]; ok && k.Hashed(i) {
			list[i] = storekey.Typed(own, false)
		}
	}
	return weir.HashedKeyOf(list...)
}
