package adapter

import "testing"

// These types stand for a client, for its interface, and for wrappers.
type (
	namer interface{ Name() string }
	// Other is an interface that a wrapper can embed, and that holds a client.
	Other interface{ Other() }
	// Namer is embedded by an exported name.
	Namer = namer
	// Client is a client.
	Client struct{ n int }

	byPointer           struct{ *Client }
	byValue             struct{ Client }
	byInterface         struct{ Namer }
	byUnexported        struct{ base }
	byUnexportedPointer struct{ *base }
	base                struct {
		Metrics
		Namer
	}
	// Metrics is no client.
	Metrics struct{}
	hidden  struct{ client namer }
	looped  struct{ Namer }
	holder  struct{ Other }
)

func (c *Client) Name() string { return "client" }
func (c *Client) Other()       {}
func (h hidden) Name() string  { return h.client.Name() }
func (h holder) Name() string  { return "holder" }

func TestWrapped(t *testing.T) {
	t.Parallel()
	c := &Client{n: 1}
	value := &byValue{Client{n: 2}}
	loop := &looped{}
	loop.Namer = loop
	secret := hidden{c}
	for name, tt := range map[string]struct{ client, want namer }{
		"no wrapper":             {c, c},
		"nil":                    {nil, nil},
		"a pointer":              {byPointer{c}, c},
		"a pointer to a wrapper": {&byPointer{c}, c},
		"a value":                {value, &value.Client},
		"an interface":           {byInterface{c}, c},
		"another interface":      {holder{c}, c},
		"several wrappers":       {&byInterface{byUnexported{base{Namer: byUnexportedPointer{&base{Namer: byPointer{c}}}}}}, c},
		"a nil interface":        {byInterface{}, nil},
		"a nil pointer":          {byPointer{}, (*Client)(nil)},
		"a field with a name":    {secret, secret},
		"itself":                 {loop, loop},
	} {
		if got := Wrapped(tt.client); got != tt.want {
			t.Errorf("%s: got %#v, want %#v", name, got, tt.want)
		}
	}
}

func TestNil(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		client any
		want   bool
	}{{nil, true}, {(*Client)(nil), true}, {&Client{}, false}, {byPointer{}, false}} {
		if got := Nil(tt.client); got != tt.want {
			t.Errorf("%#v: got %v", tt.client, got)
		}
	}
}
