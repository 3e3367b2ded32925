// Package bench holds benchmarks of weir beside other limiters. It is a module of
// its own, so that their dependencies are not weir's. See its README.
package bench
