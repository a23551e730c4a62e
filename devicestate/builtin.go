package devicestate

import "time"

// Builtin returns the profiles that ship with Hubstate: hubstate, vda5050 and tasmota. They are ordinary data: `ingest
// profile show NAME` prints one as YAML to start from.
func Builtin() []Profile {
	return []Profile{hubstateProfile(), vda5050Profile(), tasmotaProfile()}
}

// BuiltinNames are the names of Builtin, in its order: what every part takes when it is told no profiles.
func BuiltinNames() []string {
	var names []string
	for _, p := range Builtin() {
		names = append(names, p.Name)
	}
	return names
}

// hubstateProfile is our own shape: {"seq":…,"boot":…,"ts":…,"state":{…}} on hubs/{hub}/devices/{device}/{stream}.
func hubstateProfile() Profile {
	fields := Fields{Counter: "seq", Boot: "boot", Time: "ts", State: "state", Trace: "traceparent", CorrelationID: "correlation_id", CausationID: "causation_id"}
	return Profile{
		Name:   "hubstate",
		Topics: []TopicRule{{Pattern: "hubs/{hub}/devices/{device}/{stream}"}},
		Streams: map[string]StreamPolicy{
			"*":          {Fields: fields},
			"connection": {Kind: KindConnection, Counter: CounterOptional, Fields: fields},
		},
	}
}

// vda5050Profile reads VDA 5050 1.1, 2.x and 3.x: every topic counts its own 32 bit headerId; orders go to the vehicle.
func vda5050Profile() Profile {
	header := Fields{Counter: "headerId", Time: "timestamp"}
	const uint32Modulus = 1 << 32
	return Profile{
		Name: "vda5050",
		Topics: []TopicRule{
			{Pattern: "uagv/{version}/{manufacturer}/{serial}/{stream}", Device: "{manufacturer}/{serial}"},
		},
		Streams: map[string]StreamPolicy{
			"state":          {Fields: header, Modulus: uint32Modulus, Expect: 30 * time.Second},
			"visualization":  {Fields: header, Modulus: uint32Modulus, Emit: EmitChanged, Heartbeat: 10 * time.Second, Expect: 30 * time.Second},
			"factsheet":      {Fields: header, Counter: CounterOptional, Modulus: uint32Modulus, Emit: EmitChanged, Heartbeat: 12 * time.Hour, Expect: 24 * time.Hour},
			"connection":     {Kind: KindConnection, Counter: CounterOptional, Fields: header, Expect: 24 * time.Hour},
			"order":          {Ignore: true},
			"instantActions": {Ignore: true},
			"zoneSet":        {Ignore: true},
			"responses":      {Ignore: true},
		},
	}
}

// tasmotaProfile reads devices without counter and without a trustworthy time.
func tasmotaProfile() Profile {
	none := StreamPolicy{Counter: CounterNone, Expect: 10 * time.Minute}
	lwt := StreamPolicy{Format: FormatText, Counter: CounterNone, Kind: KindConnection, Expect: 24 * time.Hour}
	return Profile{
		Name:    "tasmota",
		Topics:  []TopicRule{{Pattern: "tele/{device}/{stream}"}},
		Streams: map[string]StreamPolicy{"STATE": none, "SENSOR": none, "LWT": lwt, "*": {Ignore: true}},
	}
}
