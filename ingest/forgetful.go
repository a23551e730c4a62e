package ingest

import "github.com/eclipse/paho.mqtt.golang/packets"

// forgetful is the client library's message store, keeping nothing: what we receive is stored in PostgreSQL, what is not
// acknowledged is the broker's, and we publish nothing.
type forgetful struct{}

func (forgetful) Open()                             {}
func (forgetful) Put(string, packets.ControlPacket) {}
func (forgetful) Get(string) packets.ControlPacket  { return nil }
func (forgetful) All() []string                     { return nil }
func (forgetful) Del(string)                        {}
func (forgetful) Close()                            {}
func (forgetful) Reset()                            {}
