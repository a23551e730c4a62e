// Package examples holds the programs that docs/consumers.md shows, and the tests that run them.
package examples
