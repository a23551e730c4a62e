package consumer_test

import (
	"os"
	"testing"

	"github.com/hubstate/hubstate/internal/testenv"
)

// TestMain also is the process that TestTwoMembers kills.
func TestMain(m *testing.M) {
	if os.Getenv(memberDatabase) != "" {
		os.Exit(runMember())
	}
	testenv.Main(m)
}
