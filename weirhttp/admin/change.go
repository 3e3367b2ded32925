package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// The parameters of a form, besides those of a query.
const (
	paramOp     = "op"
	paramTarget = "target" // the query of a key
	paramFor    = "for"    // how long to pause
)

// The ops of a form.
const (
	opShow   = "show" // a key that must not be in a URL
	opReset  = "reset"
	opPause  = "pause"
	opResume = "resume"
)

// opResumed is what an opResume did if the pause had ended before.
const opResumed = "resumed"

// maxForm is the largest size of a form, in bytes.
const maxForm = 1 << 20

// change makes the change that a form asks for.
func (h *handler) change(w http.ResponseWriter, r *http.Request) {
	if err := h.protection.Check(r); err != nil {
		h.fail(w, r, nil, &problem{http.StatusForbidden, "Nothing was changed.", "The form was sent by another site, or a proxy has changed the field Host."})
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		p := &problem{http.StatusBadRequest, "Nothing was changed.", "The form is not valid: " + err.Error() + "."}
		if large := new(http.MaxBytesError); errors.As(err, &large) {
			p.Status, p.Text = http.StatusRequestEntityTooLarge, fmt.Sprintf("The form is too large: it must have at most %d bytes.", maxForm)
		}
		h.fail(w, r, nil, p)
		return
	}
	form := r.PostForm
	target := form
	if form.Has(paramTarget) {
		var err error
		if target, err = url.ParseQuery(form.Get(paramTarget)); err != nil {
			h.fail(w, r, nil, &problem{http.StatusBadRequest, "Nothing was changed.", "The form is not valid: " + err.Error() + "."})
			return
		}
	}
	l := h.byName[target.Get(paramLimiter)]
	if l == nil {
		h.fail(w, r, nil, noLimiter(target.Get(paramLimiter)))
		return
	}
	key := target[paramKey] // in a form, it can be secret
	if target.Has(paramSealed) {
		var err error
		if key, err = h.keyOf(l, target); err != nil {
			h.fail(w, r, l, &problem{http.StatusBadRequest, "Nothing was changed.", sentence(err)})
			return
		}
	} else if l.hashed(key) {
		h.fail(w, r, l, &problem{http.StatusBadRequest, "Nothing was changed.", "A secret segment is a hash: send the segment itself. The command weir takes hashes."})
		return
	}
	done, err := within(r.Context(), h.timeout, func(ctx context.Context) (url.Values, error) {
		return l.change(ctx, form, key)
	})
	var misuse misuseError
	switch {
	case errors.As(err, &misuse):
		h.failKey(w, r, l, key, &problem{http.StatusBadRequest, "Nothing was changed.", sentence(err)})
		return
	case err != nil:
		h.failKey(w, r, l, key, problemOf(err, " The change may have been made: look at the key again."))
		return
	}
	if done.Has(paramDone) {
		done.Set(paramDone, h.seal.close(l.changed(key, done), done[paramDone]))
	}
	for name, values := range h.query(l, key) {
		done[name] = values
	}
	w.Header().Set("Location", "?"+done.Encode()) // http.Redirect would add the path, which a StripPrefix has changed
	w.WriteHeader(http.StatusSeeOther)
}

// A misuseError is what is wrong with a form.
type misuseError string

func (e misuseError) Error() string { return string(e) }

// change makes the change that form asks for, and returns what the redirect says about
// it.
func (l *limiter) change(ctx context.Context, form url.Values, key []string) (url.Values, error) {
	if len(key) == 0 {
		return nil, misuseError("the form has no key")
	}
	op, rule := form.Get(paramOp), form.Get(paramRule)
	done := url.Values{paramDone: {op}}
	lim, err := l.of(ctx, key)
	if err != nil {
		return nil, err
	}
	if rule != "" {
		done.Set(paramRule, rule)
		if lim, err = lim.Only(rule); err != nil {
			return nil, err
		}
	}
	switch op {
	case opShow:
		return url.Values{}, nil
	case opReset:
		return done, lim.Reset(ctx, key...)
	case opPause:
		d, err := time.ParseDuration(form.Get(paramFor))
		if err != nil || d <= 0 {
			return nil, misuseError(fmt.Sprintf("the time %q is not valid: it must be above 0 and have a unit, for example 5m", form.Get(paramFor)))
		}
		id, err := lim.Pause(ctx, d, key...)
		done.Set(paramPause, id)
		return done, err
	case opResume:
		if form.Get(paramPause) == "" {
			return nil, misuseError("the form has no pause: it must have the ID of the pause")
		}
		was, err := lim.Resume(ctx, form.Get(paramPause), key...)
		if !was {
			done.Set(paramDone, opResumed)
		}
		return done, err
	}
	return nil, misuseError(fmt.Sprintf("the page cannot %q: it can show, reset, pause and resume", op))
}
