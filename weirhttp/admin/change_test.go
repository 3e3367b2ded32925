package admin_test

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/algorithm"
	"github.com/weir-go/weir/internal/weirtest"
	"github.com/weir-go/weir/observe"
	"github.com/weir-go/weir/weirhttp/admin"
)

const annQuery = "limiter=api&key=acme&key=ann"

// A reset of a rule resets this rule, through the wrappers, and leads back to the key. The reset of the
// key leaves a rule that other keys share, and the page says so.
func TestReset(t *testing.T) {
	var ops []weir.Op
	lim := weirtest.Wrap(t, newAPI(t, nil), observe.Observer(func(_ context.Context, d observe.Decision) { ops = append(ops, d.Request.Op) }).Wrap)
	consume(t, lim, 3, "acme", "bob")
	page := newPage(t, admin.Limiter{Name: "api", Limiter: lim})
	for _, step := range []struct {
		button, note string
		left         []int64 // of tenant, user, tight, and the user bob, after 3 requests and a reset
	}{
		{"Reset user", "You have reset the rule user.", []int64{94, 10, 0, 7}},
		{"Reset tight", "You have reset the rule tight.", []int64{91, 7, 2, 7}},
		{"Reset tenant", "You have reset the rule tenant.", []int64{100, 4, 0, 7}},
		{"Reset this key", "You have reset this key.", []int64{97, 10, 2, 7}},
	} {
		consume(t, lim, 3, "acme", "ann")
		ops = nil
		text := get(page, annQuery, "").Body.String()
		form := button(t, text, step.button).values
		if w := post(page, form); w.Code != http.StatusSeeOther || !slices.Equal(ops, []weir.Op{weir.Reset}) || !strings.Contains(text, "shared by all keys with the same tenant") {
			t.Fatalf("%s: status %d, the wrappers see %v:\n%s", step.button, w.Code, ops, text)
		}
		got := []int64{left(t, lim, "tenant", "acme", "ann"), left(t, lim, "user", "acme", "ann"), left(t, lim, "tight", "acme", "ann"), left(t, lim, "user", "acme", "bob")}
		if !slices.Equal(got, step.left) {
			t.Errorf("%s: %v left, want %v", step.button, got, step.left)
		}
		if _, text := send(t, page, form); !strings.Contains(text, step.note) || !strings.Contains(text, "<bdi>ann</bdi>") {
			t.Errorf("%s leads to:\n%s", step.button, text)
		}
	}
}

// The page has no button that cannot work: only shadow rules cannot be reset together.
func TestResetOfShadowRules(t *testing.T) {
	lim := newPolicy(t, nil, weir.Policy{Name: "api", Segments: []string{"tenant", "user"}, Rules: []weir.Rule{
		{Name: "tenant", By: []string{"tenant"}, Algorithm: algorithm.FixedWindow{Limit: 10, Window: time.Hour}},
		{Name: "tight", Shadow: true, Algorithm: algorithm.FixedWindow{Limit: 1, Window: time.Hour}},
		{Name: "loose", Shadow: true, Algorithm: algorithm.FixedWindow{Limit: 9, Window: time.Hour}},
	}})
	page := newPage(t, admin.Limiter{Name: "api", Limiter: lim})
	text := get(page, annQuery, "").Body.String()
	if strings.Contains(text, "Reset this key") {
		t.Error("the page has a button to reset the key")
	}
	for _, name := range []string{"Reset tenant", "Reset tight", "Reset loose"} {
		send(t, page, button(t, text, name).values)
	}
}

// A GET changes nothing.
func TestGetChangesNothing(t *testing.T) {
	lim := newAPI(t, nil)
	consume(t, lim, 4, "acme", "ann")
	page := newPage(t, admin.Limiter{Name: "api", Limiter: lim})
	for _, more := range []string{"&op=reset", "&op=reset&rule=user", "&done=reset&rule=user"} {
		if text := get(page, annQuery+more, "").Body.String(); strings.Contains(text, "Done.") {
			t.Errorf("%s: the page says that something was done", more)
		}
	}
	if got := left(t, lim, "user", "acme", "ann"); got != 6 {
		t.Errorf("%d left, want 6", got)
	}
	// What a change leads to says nothing about another rule or another key.
	to, _ := send(t, page, button(t, get(page, annQuery, "").Body.String(), "Reset user").values)
	for _, replace := range []string{"rule=user", "key=acme", "key=ann"} {
		other := strings.Replace(to, replace, replace+"2", 1)
		if text := get(page, other, "").Body.String(); other == to || strings.Contains(text, "Done.") {
			t.Errorf("%s: the page says that something was done", other)
		}
	}
}

func TestCrossOrigin(t *testing.T) {
	lim := newAPI(t, nil)
	page := newPage(t, admin.Limiter{Name: "api", Limiter: lim})
	for name, c := range map[string]struct {
		field, value string
		allowed      bool
	}{
		"a form of the page":             {"Sec-Fetch-Site", "same-origin", true},
		"a form of another site":         {"Sec-Fetch-Site", "cross-site", false},
		"a form of another subdomain":    {"Sec-Fetch-Site", "same-site", false},
		"an older browser, here":         {"Origin", "http://example.com", true},
		"an older browser, another site": {"Origin", "https://evil.example", false},
		"a frame without an origin":      {"Origin", "null", false},
		"a program":                      {"X", "", true},
	} {
		consume(t, lim, 1, "acme", "ann")
		w := post(page, url.Values{"op": {"reset"}, "rule": {"user"}, "limiter": {"api"}, "key": {"acme", "ann"}}, func(r *http.Request) { r.Header.Set(c.field, c.value) })
		want := http.StatusForbidden
		if c.allowed {
			want = http.StatusSeeOther
		}
		if reset := left(t, lim, "user", "acme", "ann") == 10; w.Code != want || reset != c.allowed {
			t.Errorf("%s: status %d, want %d; reset: %v:\n%s", name, w.Code, want, reset, w.Body)
		}
	}
}

func TestBadForms(t *testing.T) {
	lim := newAPI(t, nil)
	consume(t, lim, 4, "acme", "ann")
	page := newPage(t, admin.Limiter{Name: "api", Limiter: lim}, admin.Limiter{Name: "log-in", Limiter: newSecret(t, nil)})
	for name, c := range map[string]struct {
		form   url.Values
		status int
		text   string
	}{
		"empty":           {url.Values{}, http.StatusNotFound, "no limiter"},
		"another limiter": {url.Values{"limiter": {"x"}}, http.StatusNotFound, "no limiter"},
		"no op":           {url.Values{"limiter": {"api"}, "key": {"acme", "ann"}}, http.StatusBadRequest, "cannot"},
		"another op":      {url.Values{"limiter": {"api"}, "key": {"acme", "ann"}, "op": {"force"}}, http.StatusBadRequest, "cannot"},
		"no key":          {url.Values{"limiter": {"api"}, "op": {"reset"}}, http.StatusBadRequest, "no key"},
		"a short key":     {url.Values{"limiter": {"api"}, "op": {"reset"}, "key": {"acme"}}, http.StatusBadRequest, "1 segments"},
		"a hash":          {url.Values{"limiter": {"log-in"}, "op": {"reset"}, "key": {"192.0.2.1", "%sha256=" + strings.Repeat("0", 64)}}, http.StatusBadRequest, "send the segment itself"},
		"another rule":    {url.Values{"limiter": {"api"}, "op": {"reset"}, "key": {"acme", "ann"}, "rule": {"x"}}, http.StatusBadRequest, "no rule"},
		"a bad target":    {url.Values{"target": {"%zz"}, "op": {"reset"}}, http.StatusBadRequest, "not valid"},
		"a bad seal":      {url.Values{"target": {"limiter=api&sealed=x"}, "op": {"reset"}}, http.StatusBadRequest, "type the key again"},
		"too large":       {url.Values{"limiter": {"api"}, "op": {"reset"}, "key": {"acme", strings.Repeat("x", 1<<20)}}, http.StatusRequestEntityTooLarge, "too large"},
		"no pause rule":   {url.Values{"limiter": {"api"}, "op": {"pause"}, "key": {"acme", "ann"}, "for": {"5m"}}, http.StatusBadRequest, "algorithm.pause{}"},
		"no ID":           {url.Values{"limiter": {"api"}, "op": {"resume"}, "key": {"acme", "ann"}}, http.StatusBadRequest, "the id of the pause"},
		"no unit":         {url.Values{"limiter": {"api"}, "op": {"pause"}, "key": {"acme", "ann"}, "for": {"5"}}, http.StatusBadRequest, "have a unit"},
		"a bad time":      {url.Values{"limiter": {"api"}, "op": {"pause"}, "key": {"acme", "ann"}, "for": {"-5m"}}, http.StatusBadRequest, "above 0"},
	} {
		w := post(page, c.form)
		if text := strings.ToLower(w.Body.String()); w.Code != c.status || !strings.Contains(text, c.text) || !strings.Contains(text, `role="alert"`) {
			t.Errorf("%s: status %d, want %d and %q:\n%s", name, w.Code, c.status, c.text, text)
		}
	}
	if got := left(t, lim, "user", "acme", "ann"); got != 6 {
		t.Errorf("%d left, want 6", got)
	}
}

// A form pauses a key until it ends, or until a form ends it.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lim := newPolicy(t, nil, weir.Policy{Name: "api", Segments: []string{"tenant", "user"}, Rules: []weir.Rule{
			{Name: "user", Algorithm: algorithm.FixedWindow{Limit: 10, Window: time.Hour}},
			{Name: "pause", Algorithm: algorithm.Pause{}},
			{Name: "pause all", By: []string{"tenant"}, Algorithm: algorithm.Pause{}},
		}})
		page := newPage(t, admin.Limiter{Name: "api", Limiter: lim})
		allowed := func(user string) bool { return weirtest.Left(t, lim, "acme", user).Allowed }
		// press presses a button of a rule, with the time of a pause, and returns the page that follows.
		press := func(text, name, rule, d string) string {
			t.Helper()
			form := button(t, text, name, rule).values
			if d != "" {
				form.Set("for", d)
			}
			_, next := send(t, page, form)
			return next
		}
		open := get(page, annQuery, "").Body.String()
		if !strings.Contains(open, "not paused") || strings.Contains(open, "End") || !strings.Contains(open, `value="5m"`) {
			t.Errorf("the page of a key that is not paused:\n%s", open)
		}
		paused := press(open, "Pause", "pause", "5m")
		if allowed("ann") || !allowed("bob") || !strings.Contains(paused, "You have paused this key") || !strings.Contains(paused, "is allowed in 5 min.") {
			t.Errorf("after a pause: ann %v, bob %v:\n%s", allowed("ann"), allowed("bob"), paused)
		}
		time.Sleep(5*time.Minute - time.Microsecond)
		if allowed("ann") {
			t.Error("the pause has ended early")
		}
		time.Sleep(time.Microsecond)
		if !allowed("ann") {
			t.Error("the pause has not ended")
		}
		// The page that follows a pause can end this pause, and no other.
		paused = press(open, "Pause", "pause", "1h")
		press(open, "Pause", "pause", "1m")
		resumed := press(paused, "End this pause", "pause", "")
		if allowed("ann") || !strings.Contains(resumed, "You have ended the pause.") {
			t.Errorf("after the end of one of two pauses: ann %v:\n%s", allowed("ann"), resumed)
		}
		if resumed = press(paused, "End this pause", "pause", ""); !strings.Contains(resumed, "had ended before") {
			t.Errorf("the end of a pause that has ended:\n%s", resumed)
		}
		press(resumed, "End all pauses", "pause", "")
		if !allowed("ann") {
			t.Error("a pause goes on")
		}
		// A rule that keys share pauses all of them.
		press(open, "Pause", "pause all", "1m")
		if allowed("ann") || allowed("bob") {
			t.Error("a pause of the tenant does not pause every user")
		}
		if paused = press(open, "Pause", "pause", "1m"); strings.Count(paused, "End this pause") != 1 {
			t.Errorf("the page does not offer to end one pause:\n%s", paused)
		}
	})
}
