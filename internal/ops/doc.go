// Package ops is what the daemons share: configuration (file, environment and flags under one name), the logger,
// signals and exit codes, the admin server with metrics, health and readiness, and PostgreSQL connections that run
// with the rights of one role.
//
// It knows nothing of devices, outboxes or MQTT, so every package may import it.
package ops
