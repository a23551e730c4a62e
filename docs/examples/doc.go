// Package examples holds the programs that docs/consuming.md shows, and the tests that run them.
package examples
