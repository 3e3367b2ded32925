package weir

// Held returns the number of tokens of a key that l holds and can use.
func (l *Limiter) Held(key ...string) int64 {
	d, ok := l.outer.(*prefetched)
	for !ok { // the wrappers around it
		c, isCache := l.outer.(*denyCache)
		if !isCache {
			return 0
		}
		d, ok = c.next.(*prefetched)
		if !ok {
			return 0
		}
	}
	k := KeyOf(key...)
	h := d.find(&k, &d.limits)
	if h == nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if f := h.current; f != nil && d.now() < f.until {
		return f.held - f.used
	}
	return 0
}
