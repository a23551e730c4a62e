package consumer_test

import (
	"testing"

	"github.com/hubstate/hubstate/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }
