package weirhttp

// Pauses returns the number of pauses that t holds.
func Pauses(t *Transport) int {
	t.pauses.mu.Lock()
	defer t.pauses.mu.Unlock()
	return len(t.pauses.until)
}
