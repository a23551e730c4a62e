package testenv

import (
	"testing"

	"github.com/hubstate/hubstate/deploy"
)

func TestKafkaEnvironment_CarriesTheInstalledSettings(t *testing.T) {
	t.Parallel()
	text, err := deploy.Files.ReadFile("kafka/server.properties")
	if err != nil {
		t.Fatal(err)
	}
	env := kafkaEnvironment(text, "127.0.0.1:29092")
	for name, want := range map[string]string{
		"KAFKA_AUTO_CREATE_TOPICS_ENABLE":      "false",
		"KAFKA_UNCLEAN_LEADER_ELECTION_ENABLE": "false",
		"KAFKA_ADVERTISED_LISTENERS":           "PLAINTEXT://127.0.0.1:29092",
		"KAFKA_MIN_INSYNC_REPLICAS":            "1", // one node: the file asks for two
	} {
		if env[name] != want {
			t.Errorf("%s = %q, want %q", name, env[name], want)
		}
	}
}
