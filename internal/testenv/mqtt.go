package testenv

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/hubstate/hubstate/internal/embedded"
)

// MQTT returns the URL of a real Mosquitto with the settings of deploy/mosquitto, shared by the tests of this binary:
// each uses client ids and topic levels of its own.
func MQTT(t testing.TB) string {
	t.Helper()
	url, err := theMQTT()
	if err != nil {
		missing(t, fmt.Errorf("MQTT broker for tests: %w", err))
	}
	return url
}

var theMQTT = sync.OnceValues(func() (string, error) {
	if url := os.Getenv("HUBSTATE_TEST_MQTT_URL"); url != "" {
		took("MQTT", "HUBSTATE_TEST_MQTT_URL")
		return url, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if dockerAnswers() {
		return dockerMosquitto(ctx)
	}
	dir, err := theEnvironment().subdir("mosquitto")
	if err != nil {
		return "", err
	}
	broker, err := embedded.StartMosquitto(ctx, embedded.MosquittoOptions{Dir: dir})
	if err != nil {
		return "", err
	}
	theEnvironment().onStop(broker.Stop)
	took("MQTT", "Mosquitto of this machine")
	return broker.URL(), nil
})
