// Package rig starts everything a load test needs on this machine: a real Mosquitto, PostgreSQL, Kafka and Redis, and
// the product's own binaries as child processes. It breaks and mends each of them on a timetable, and samples what they
// use. Given the addresses of an installation it starts nothing and can break nothing.
package rig
