// Package consumertest is a test kit for code that consumes DeviceStateChanged: TestHandler shows what your handler does
// with everything the topic may bring, TestStore whether a position store keeps its promises, Record builds records as the
// relay publishes them. It needs no Kafka.
package consumertest
