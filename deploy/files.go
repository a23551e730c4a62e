// Package deploy carries the server settings an installation needs, so that `make run` and the tests use exactly the
// files an operator installs.
package deploy

import "embed"

// Files holds mosquitto/, postgres/ and kafka/ of this folder.
//
//go:embed mosquitto postgres kafka
var Files embed.FS
