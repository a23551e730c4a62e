// Package testenv gives tests the servers they run on.
//
// For each server the order is: a URL (HUBSTATE_TEST_DATABASE_URL, HUBSTATE_TEST_KAFKA_BROKERS, HUBSTATE_TEST_MQTT_URL,
// HUBSTATE_TEST_REDIS_URL), then a container when a Docker daemon answers, then the binaries of this machine. With
// CI=true a server that is not to be had fails the test; otherwise the test is skipped with the remedy. What was taken
// is printed once per test binary.
//
// A server is started on first use and shared by the tests of one test binary; they stay apart by databases, topics,
// key prefixes and client ids of their own. Tests that kill or pause a server start one of their own with
// internal/embedded.
//
//	func TestMain(m *testing.M) { testenv.Main(m) }
//
//	func TestRelay_Promise(t *testing.T) {
//		t.Parallel()
//		pool, err := pgxpool.New(t.Context(), testenv.Postgres(t))
//
// HUBSTATE_TEST_POSTGRES_VERSION picks the major version of a local PostgreSQL (default: the newest found).
package testenv
